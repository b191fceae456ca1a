"""Programs for tasks, packages, builds, tests and linters of a project."""

from proxy.tools.programs import Program

PROJECT_PROGRAMS = (
    Program(
        "make gmake just task rake invoke ninja ant earthly mage doit",
        {
            "make deploy": True,
            "make release-notes": False,
            "make update": False,
            "just publish": True,
            "rake db:migrate": True,
        },
        harmless_with="-n --just-print -q --question",
        valued="-C -f -j -t -d --justfile --taskfile --directory",
        runs_tasks=True,
    ),
    Program(
        "mvn mvnw gradle gradlew sbt",
        {
            "mvn clean verify deploy": True,
            "mvn -q deploy": True,
            "./gradlew -d :app:publish": True,
            "gradle assembleRelease": False,
        },
        valued="-p -f --project-dir",
        runs_tasks=True,
    ),
    Program(
        "rails bin/rails manage.py django-admin artisan flask mix",
        {
            "rails db:migrate": True,
            "poetry run python manage.py migrate": True,
            "python manage.py showmigrations": False,
            "flask db upgrade": True,
        },
        acts="db/upgrade db/downgrade migrate flush loaddata sendtestemail createsuperuser db:drop db:seed db:reset "
        "db:wipe clearsessions changepassword runscript hex.publish ecto.migrate queue:flush queue:restart",
        harmless="showmigrations routes check sqlmigrate about diffsettings makemigrations generate g new startapp "
        "startproject collectstatic compilemessages deps.get",
        harmless_with="--plan --pretend --list",
        nouns="db",
        runs_tasks=True,
    ),
    Program(
        "npm yarn pnpm deno bun mise asdf lerna changeset goreleaser nx turbo",
        {
            "npm publish --access public": True,
            "npm run deploy": True,
            "npm install deploy-tools": False,
            "npm view react versions": False,
            "pnpm --filter web run deploy": True,
            "bun test": False,
            "bun create deploy-app": False,
            "mise run deploy": True,
            "goreleaser release": True,
        },
        acts="publish unpublish deprecate dist-tag/add dist-tag/rm owner/add owner/rm access/grant token/create "
        "token/revoke npm/publish",
        harmless="ls list view info show outdated audit why explain search whoami ping root bin install i ci add "
        "remove uninstall un rm update upgrade up init pack link dedupe prune rebuild login version config set "
        "cache approve-builds patch fetch audit/fix create pm use which current doctor env settings tasks trust",
        nouns="audit dist-tag owner access token npm",
        valued="--prefix --filter -F -w --workspace -C --dir --cwd",
        runs_tasks=True,
    ),
    Program(
        "pip pipx uv poetry pdm pipenv hatch rye conda mamba flit setup.py brew apt apt-get dnf yum apk pacman snap "
        "choco winget gem composer bundle pod nvm pyenv rbenv rustup sdk go-install port nix twine cargo",
        {
            "pip install -r requirements.txt": False,
            "uv publish": True,
            "conda create -n shop": False,
            "gem push shop.gem": True,
            "twine upload dist/*": True,
            "cargo publish": True,
            "cargo test deploy": False,
        },
        acts="publish upload push yank owner release register",
    ),
    Program("semantic-release release-it np", {"npx semantic-release": True}, acts="*"),
    Program(
        "pytest py.test tox nox unittest jest vitest mocha ava playwright cypress karma react-scripts rspec phpunit "
        "pest ctest tap prove node-tap bats go golangci-lint staticcheck govulncheck ruff flake8 pylint mypy pyright "
        "ty pyre eslint tsc stylelint oxlint biome dotnet",
        {
            "pytest tests/test_deploy.py -k refund": False,
            "jest deploy": False,
            "go test ./...": False,
            "dotnet publish": False,
            "dotnet nuget push shop.nupkg": True,
        },
        acts="nuget/push nuget/delete",
        nouns="nuget",
    ),
)
