"""Programs that agents run: what each does, and how it says that it ended."""

import re

from msgspec import Struct


class ActingProgram(Struct, frozen=True):
    programs: str
    words: str
    """A command that acts has one of them as an argument; if there are none, every command acts."""
    example: str


ACTING_PROGRAMS = (
    ActingProgram(
        "git", "push merge rebase cherry-pick revert commit tag pull am reset", "git push origin fix/retry-budget"
    ),
    ActingProgram(
        "gh glab",
        "create merge close reopen comment edit delete review ready run rerun cancel upload -f -F --field --raw-field "
        "--input",
        "gh api repos/acme/shop/pulls/7/comments -f body=Fixed",
    ),
    ActingProgram("gh glab curl", "POST PUT PATCH DELETE", "curl -s -X POST https://api.example.com/orders"),
    ActingProgram(
        "curl",
        "-d --data --data-raw --data-binary --data-urlencode --json -F --form -T --upload-file -XPOST -XPUT -XPATCH "
        "-XDELETE",
        'curl https://hooks.example.com/x -d \'{"text": "done"}\'',
    ),
    ActingProgram("wget", "--post-data --post-file", "wget --post-data=a=1 https://api.example.com"),
    ActingProgram("terraform tofu pulumi cdk", "apply destroy import up deploy taint", "terraform apply -auto-approve"),
    ActingProgram(
        "kubectl oc",
        "apply create delete patch replace scale rollout set edit annotate label drain cordon run expose",
        "kubectl rollout undo deployment/checkout",
    ),
    ActingProgram("helm", "install upgrade rollback uninstall delete", "helm upgrade checkout ./chart"),
    ActingProgram("docker podman", "push", "docker push registry/checkout:v42"),
    ActingProgram("npm yarn pnpm cargo poetry uv gem twine", "publish upload unpublish", "npm publish --access public"),
    ActingProgram(
        "systemctl service supervisorctl pm2", "start stop restart reload enable disable", "systemctl restart nginx"
    ),
    ActingProgram("alembic flyway liquibase", "upgrade downgrade migrate update rollback", "alembic upgrade head"),
    ActingProgram("ansible-playbook sendmail mail mailx mutt", "", "ansible-playbook site.yml"),
)
READING_PROGRAMS = frozenset(
    (
        *("cat", "head", "tail", "less", "more", "nl", "bat", "grep", "egrep", "rg", "ag", "find", "fd", "ls", "tree"),
        *("wc", "awk", "sed", "jq", "yq", "sort", "uniq", "cut", "tr", "echo", "printf", "cd", "pwd", "diff", "stat"),
        *("file", "which", "man", "test", "mkdir", "cp", "mv", "rm", "touch", "chmod", "export", "sleep", "true"),
        *("column", "strings", "xxd"),
    )
)
"""Their words are names, for they read or change files only."""


class FileProgram(Struct, frozen=True):
    names: str
    change: str = ""
    options: tuple[str, ...] = ()
    """If there are any, an option begins with one of them."""
    first: int = 0
    """The first file among the words that are no options; -1 if only the last is one."""


FILE_PROGRAMS = (
    FileProgram("cat head tail less more nl bat open"),
    FileProgram("sed perl", "edited", ("-i", "-pi", "-p"), 1),
    FileProgram("sed", "", ("-n",), 1),
    FileProgram("tee touch create", "written"),
    FileProgram("rm unlink git-rm", "deleted"),
    FileProgram("mv git-mv", "moved here", (), -1),
    FileProgram("cp", "copied", (), -1),
    FileProgram("git-restore", "restored"),
    FileProgram("git-checkout", "restored", ("--",)),
)
ENDED_WELL = re.compile(
    r"^[ \t]*+(?:"
    r"=* ?(?:tests?:? +)?(?:\d+ (?:skipped|todo|deselected|warnings?|x\w+|pending)[, |]+){0,4}\d+ pass(?:ed|ing)?\b"
    r"|ran \d+ tests? in [\d.]+s$"  # unittest
    r"|ok  \t\S+\t"  # go test: "ok  <tab>tides/berth<tab>0.31s"
    r"|0 fail$"  # bun test
    r"|0 issues\.|all checks passed!|success: no issues found|checked \d+ files? in"  # golangci-lint, ruff, mypy, biome
    r"|\[[\w./-]+ (?:\(root-commit\) )?(?=\d*[a-f])[0-9a-f]{7,40}\] \S"  # git commit
    r"|[0-9a-f]{7,40}\.\.[0-9a-f]{7,40} +\S+ +-> +\S|\* \[new (?:branch|tag)\]"  # git push
    r"|fast-forward$|successfully rebased|head is now at |merge made by"  # git merge, rebase, reset
    r"|https?://\S+/(?:pull|issues|releases?)/\S+$"  # gh pr create
    r"|[✓✔] (?:squashed|merged|rebased|closed|reopened|created)[^\n]* (?:pull request|issue) "  # gh pr merge
    r"|successfully (?:installed|built|uninstalled) |installed \d+ packages?"  # pip, uv
    r"|(?:added|removed|changed) \d+ packages?|up to date"  # npm
    r"|test result: ok\."
    r")(?![^\n]*[1-9]\d* (?:fail|error))",
    re.MULTILINE,
)
"""Lines by which a command tells that it worked, or names its product."""
