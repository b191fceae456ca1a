"""Programs for tasks, packages, builds, tests and linters of a project."""

from proxy.tools.programs import Program

PROJECT_PROGRAMS = (
    Program(
        "make gmake just task rake invoke ninja ant earthly mage doit",
        {
            "make deploy": True,
            "make -C app test": False,
            "make release-notes": False,
            "just publish": True,
            "rake db:migrate": True,
        },
        harmless_with="-n --just-print -q --question",
        valued="-C -f -j -t -d --justfile --taskfile --directory",
        runs_tasks=True,
        failed={
            "aftermath": {
                r"make(?:\[\d+\])?: \*\*\* (?![^\n]*\(ignored\))": "make: *** [Makefile:3: all] Error 1",
                "error: Recipe ": "error: Recipe `test` failed on line 3 with exit code 1",
            }
        },
    ),
    Program(
        "mise asdf",
        {"mise run deploy": True, "mise ls": False, "mise install": False},
        harmless="ls list current which doctor env settings tasks install use trust upgrade uninstall",
        runs_tasks=True,
        failed={"aftermath": {"ERROR task failed": "[test] ERROR task failed"}},
    ),
    Program(
        "mvn mvnw gradle gradlew sbt",
        {"mvn deploy": True, "gradle assembleRelease": False, "./gradlew :app:publish": True, "mvn -q test": False},
        valued="-p -f --project-dir",
        runs_tasks=True,
        worked={r"build success(?:ful)?\b": "[INFO] BUILD SUCCESS"},
        failed={
            "aftermath": {r"(?:\[ERROR\] )?BUILD FAIL(?:ED|URE)\b": "[ERROR] BUILD FAILURE"},
            "case": {r"> Task \S+ FAILED\b": "> Task :app:test FAILED"},
        },
    ),
    Program(
        "rails bin/rails manage.py django-admin artisan flask mix",
        {
            "rails db:migrate": True,
            "poetry run python manage.py migrate": True,
            "python manage.py showmigrations": False,
            "rails db:migrate:status": False,
            "php artisan migrate --force": True,
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
        "npm yarn pnpm deno",
        {
            "npm publish --access public": True,
            "npm run deploy": True,
            "npm run build": False,
            "npm install deploy-tools": False,
            "npm view react versions": False,
            "pnpm --filter web run deploy": True,
        },
        acts="publish unpublish deprecate dist-tag/add dist-tag/rm owner/add owner/rm access/grant token/create "
        "token/revoke npm/publish",
        harmless="ls list view info show outdated audit why explain search whoami ping root bin install i ci add "
        "remove uninstall un rm update upgrade up init pack link dedupe prune rebuild login version config set "
        "cache approve-builds patch fetch audit/fix",
        nouns="audit dist-tag owner access token npm",
        valued="--prefix --filter -F -w --workspace -C --dir --cwd",
        runs_tasks=True,
        worked={r"(?:added|removed|changed) \d+ packages?|up to date": "added 12 packages in 3s"},
        failed={
            "aftermath": {
                "npm (?:ERR!|error) ": "npm ERR! code ERESOLVE",
                r"error:? (?:script|Command) [^\n]*code": 'error: script "lint" exited with code 1',
                r"husky - \S+ (?:script|hook) (?:failed|exited)": "husky - pre-commit script failed (code 1)",
            }
        },
    ),
    Program(
        "bun",
        {"bun test": False, "bun run deploy": True, "bun publish": True, "bun pm ls": False},
        acts="publish",
        harmless="pm outdated why install i add remove update link init create upgrade",
        valued="--cwd --filter",
        runs_tasks=True,
        worked={"0 fail$": " 0 fail"},
        failed={"case": {r"\(fail\) ": "(fail) tide > adds [1.02ms]"}},
    ),
    Program(
        "pip pipx uv poetry pdm pipenv hatch rye conda mamba flit setup.py brew apt apt-get dnf yum apk pacman snap "
        "choco winget gem composer bundle pod nvm pyenv rbenv rustup sdk go-install port nix",
        {
            "pip install -r requirements.txt": False,
            "uv publish": True,
            "pip list --outdated": False,
            "apt-cache policy nginx": False,
            "gem push shop.gem": True,
            "poetry show": False,
        },
        acts="publish upload push yank owner",
        worked={
            "successfully (?:installed|built|uninstalled) ": "Successfully installed httpx-0.28.1",
            r"installed \d+ packages?": "Installed 12 packages in 31ms",
        },
    ),
    Program(
        "twine",
        {"twine upload dist/*": True, "python -m twine check dist/*": False},
        acts_always=True,
        harmless="check",
    ),
    Program(
        "cargo",
        {"cargo publish": True, "cargo test -p shop": False, "cargo metadata": False},
        acts="publish yank owner release",
        worked={r"test result: ok\.": "test result: ok. 12 passed; 0 failed; 0 ignored"},
        failed={
            "aftermath": {
                "error: could not compile ": "error: could not compile `tides` (lib) due to 2 previous errors"
            },
            "summary": {r"test result: FAILED\.": "test result: FAILED. 1 passed; 1 failed"},
            "case": {r"test \S+ \.\.\. FAILED\b": "test berth::tide ... FAILED"},
            "cause": {r"thread '[^'\n]*' (?:\(\d+\) )?panicked at ": "thread 'main' (41) panicked at src/main.rs:3:5:"},
        },
    ),
    Program(
        "lerna changeset goreleaser nx turbo",
        {"lerna publish": True, "goreleaser check": False, "turbo run build": False},
        acts="publish release changeset/publish",
        harmless="check status list ls diff changed healthcheck graph show",
        nouns="changeset",
        runs_tasks=True,
    ),
    Program("semantic-release release-it np", {"npx semantic-release": True}, acts_always=True),
    Program(
        "go",
        {"go test ./...": False, "go mod tidy": False, "go list -m all": False},
        harmless="mod/graph mod/why",
        nouns="mod",
        worked={r"ok  \t\S+\t": "ok  \ttides/berth\t0.31s"},
        failed={
            "aftermath": {r"\S+: too many errors": "berth/tide.go:227:40: too many errors"},
            "summary": {"FAIL$": "FAIL", r"FAIL\t\S+(?:\t[\d.]+s| \[\w+ failed\])$": "FAIL\ttides/b [build failed]"},
            "case": {"--- FAIL: ": "--- FAIL: TestTide (0.00s)"},
        },
    ),
    Program(
        "pytest py.test tox nox",
        {"pytest tests/test_deploy.py -k refund": False, "python -m pytest -q": False, "pytest --collect-only": False},
        harmless_with="--collect-only --fixtures --markers",
        worked={
            r"=* ?(?:tests?:? +)?(?:\d+ (?:skipped|todo|deselected|warnings?|x\w+|pending)[, |]+){0,4}"
            r"\d+ pass(?:ed|ing)?\b": "===== 12 passed, 1 skipped in 0.31s ====="
        },
        failed={
            "summary": {
                r"=* ?(?:\d+ \w+, )*[1-9]\d* (?:failed|errors?)\b[^\n]* in [\d.]+s": "== 1 failed, 12 passed in 0.3s =="
            },
            "case": {
                r"FAILED:? +(?!0\b)\S": "FAILED tests/test_pool.py::test_57 - KeyError: 'a'",
                r"\S+::\S+ FAILED\b": "tests/test_pool.py::test_57 FAILED",
            },
            "sign": {
                "E {3,}[A-Za-z]": "E   KeyError: 'a'",
                r"[^\s:]+:\d+: [A-Z]\w*(?:Error|Exception)$": "tests/test_clearance.py:57: AssertionError",
            },
        },
    ),
    Program(
        "unittest",
        {"python -m unittest discover": False},
        worked={r"ran \d+ tests? in [\d.]+s$": "Ran 12 tests in 0.01s"},
        failed={
            "summary": {r"FAILED \((?:failures|errors)=": "FAILED (failures=1)"},
            "case": {r"FAIL: (?!0\b)": "FAIL: test_a (t.T)"},
        },
    ),
    Program(
        "jest vitest mocha ava playwright cypress karma react-scripts",
        {"npx jest src/deploy.test.ts": False, "vitest run": False},
        failed={
            "summary": {
                r"Tests:? +(?:\d+ \w+[, |]+)*[1-9]\d* failed": "      Tests  1 failed | 12 passed (13)",
                r"[1-9]\d* fail(?:ing|ed)?$": "  1 failing",
            },
            "case": {
                r"FAIL +\S*[./]": "FAIL  src/tide.test.ts > adds",
                r"(?<=  )● \S": "  ● adds",  # systemctl writes it without white space
            },
        },
    ),
    Program(
        "rspec",
        {"bundle exec rspec spec/deploy_spec.rb": False},
        worked={r"\d+ examples?, 0 failures": "12 examples, 0 failures"},
        failed={"summary": {r"\d+ examples?, [1-9]\d* failures?": "2 examples, 1 failure"}},
    ),
    Program(
        "phpunit pest",
        {"vendor/bin/phpunit tests/DeployTest.php": False},
        worked={r"ok \(\d+ tests?, \d+ assertions?\)": "OK (3 tests, 3 assertions)"},
        failed={
            "summary": {
                r"Tests: \d+, Assertions: \d+, [^\n]*(?:Failures|Errors): [1-9]": "Tests: 3, Assertions: 3, Errors: 1."
            }
        },
    ),
    Program(
        "ctest",
        {"ctest --output-on-failure": False},
        worked={"100% tests passed": "100% tests passed, 0 tests failed out of 3"},
        failed={"summary": {r"\d+% tests passed, [1-9]\d* tests failed": "67% tests passed, 1 tests failed out of 3"}},
    ),
    Program(
        "dotnet",
        {"dotnet test": False, "dotnet nuget push shop.nupkg": True, "dotnet new console": False},
        acts="nuget/push nuget/delete",
        harmless="nuget/list",
        nouns="nuget ef database",
        worked={"passed! +- failed: +0, ": "Passed!  - Failed:     0, Passed:    42, Skipped:     0"},
        failed={
            "aftermath": {r"Build FAILED\b": "Build FAILED."},
            "summary": {"Failed! +- Failed: ": "Failed!  - Failed:     1, Passed:    41, Skipped:     0"},
        },
    ),
    Program(
        "tap prove node-tap bats",
        {"prove -v t/": False},
        failed={"case": {r"not ok \d(?![^\n]*# (?:TODO|SKIP))": "not ok 57 - pool releases its connection"}},
    ),
    Program(
        "golangci-lint staticcheck govulncheck",
        {"golangci-lint run ./...": False},
        worked={r"0 issues\.": "0 issues."},
        failed={"aftermath": {r"[1-9]\d* issues?:$": "3 issues:"}},
    ),
    Program("ruff flake8 pylint", {"ruff check .": False}, worked={"all checks passed!": "All checks passed!"}),
    Program(
        "mypy pyright ty pyre",
        {"mypy --strict proxy": False},
        worked={"success: no issues found": "Success: no issues found in 194 source files"},
    ),
    Program(
        "eslint tsc stylelint oxlint",
        {"npx tsc --noEmit": False},
        failed={
            "aftermath": {
                r"(?:Found|✖) [1-9]\d* (?:errors?|problems?)\b(?! \(0 errors)": "✖ 2 problems (1 error, 1 warning)"
            },
            "case": {r"\d+:\d+ +error +": "  12:5  error  'x' is never used  no-unused-vars"},
        },
    ),
    Program(
        "biome",
        {"npx biome check src": False},
        worked={r"checked \d+ files? in": "Checked 22 files in 4ms."},
        failed={
            "aftermath": {
                r"\xd7 Some (?:errors|warnings) were ": "\xd7 Some errors were emitted while running checks."
            },
            "case": {r"\S+ (?:lint/\S+|format|parse)\b[^\n]* ━{5}": "a.ts:1044:25 lint/style/useConst ━━━━━━━━━━"},
        },
    ),
)
