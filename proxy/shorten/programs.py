"""What programs print about failure and success, as data for `outcome`.

A new entry needs a line from a real run in `tests/shorten/test_outcomes.py`. Matched in lower case.
"""

FAILURE_WORDS = (
    *("error", "fail", "fatal", "panic", "exception", "traceback", "critical", "denied", "refused", "not found"),
    *("no such", "cannot", "could not", "unable to", "undefined", "conflict", "reject", "declined", "unauthori"),
    *("timed out", "timeout", "abort", "interrupt", "kill", "crash", "segmentation fault", "core dumped"),
    *("out of memory", "exhausted", "unreachable", "rolled back", "rolled_back", "rolling back", "not ok ", "***"),
    *("err!", "warn", "sh: ", "fehler", "erreur", "错误", "エラー", "오류", "ошибка", "✗", "✘", "✖", "✕", "❌", "● "),
)
FAILURE_MARKS = (
    r"^x \S",  # gh run view: "X step 57 deploy to production (exit 137)"
    r"\" 5\d\d [\d-]",  # access logs: `"POST /charge HTTP/1.1" 500 17`
    r"^e\d{4} \d\d:",  # klog: "E1125 09:00:57.000000  1 pool.go:91] pool exhausted"
    r":\d{1,7}:\d{1,5}: ",  # compilers and linters: "main.go:7:2: undefined: foo"
)
"""Expressions for other lines that tell of a failure."""
HARMLESS = (
    r"\b(?:no|0|zero|without) (?:\w+ )?(?:errors?|fail(?:ed|ures?|ing|s)?|warnings?|conflicts?|problems?)\b",
    r"\b(?:errors?|fail(?:ed|ures?)|warnings?|conflicts?|unreachable)\W{1,4}(?:0|none|null|nil|false|\[\]|\{\})(?![\w.])",
    r"^\s*(?:[✓✔✅☑]|ok \d|ok  \t|pass\b|--- pass|=== (?:run|pause|cont|name)|[\w/.:\[\]-]+ passed\b)",
)
"""Passages in which such a word tells of no failure."""
END_STATES = (
    r"=* ?(?:tests?:? +)?(?:\d+ (?:skipped|todo|deselected|warnings?|x\w+|pending)[, |]+){0,4}\d+ pass(?:ed|ing)?\b",
    r"ran \d+ tests? in [\d.]+s$",  # unittest
    r"ok  \t\S+\t",  # go test: "ok  <tab>tides/berth<tab>0.31s"
    r"0 fail$",  # bun test
    r"0 issues\.|all checks passed!|success: no issues found|checked \d+ files? in",  # golangci-lint, ruff, mypy, biome
    r"\[[\w./-]+ (?:\(root-commit\) )?(?=\d*[a-f])[0-9a-f]{7,40}\] \S",  # git commit
    r"[0-9a-f]{7,40}\.\.[0-9a-f]{7,40} +\S+ +-> +\S|\* \[new (?:branch|tag)\]",  # git push
    r"fast-forward$|successfully rebased|head is now at |merge made by",  # git merge, rebase, reset
    r"https?://\S+/(?:pull|issues|releases?)/\S+$",  # gh pr create
    r"[✓✔] (?:squashed|merged|rebased|closed|reopened|created)[^\n]* (?:pull request|issue) ",  # gh pr merge
    r"successfully (?:installed|built|uninstalled) |installed \d+ packages?",  # pip, uv
    r"(?:added|removed|changed) \d+ packages?|up to date",  # npm
    r"test result: ok\.",
)
"""Lines by which a command tells that it worked, or names its product; matched at the first word."""
