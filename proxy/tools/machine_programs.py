"""Programs for files, texts, version control, requests and databases."""

from proxy.tools.programs import FileRule, Program

MACHINE_PROGRAMS = (
    # Files and texts.
    Program(
        "cat head tail less more nl bat tac open",
        {"tail -n 40 deploy.log": "looks"},
        "looks",
        quotes="*",
        files=(FileRule(),),
    ),
    Program(
        "grep egrep fgrep rg ag ack diff cmp comm zgrep",
        {"grep -rn deploy src/": "looks"},
        "looks",
        quotes="*",
        answers="*",
    ),
    Program("test [ [[ pgrep which type", {"test -f deploy.sh": "looks"}, "looks", quotes="*", answers="*"),
    Program(
        "ls tree wc awk gawk jq yq sort uniq cut tr echo printf cd pwd stat file man sleep true false : export set "
        "read column strings xxd od hexdump exit return shopt date seq base64 basename dirname realpath readlink "
        "md5sum sha256sum shasum unset pushd popd wait local declare tshark zcat",
        {"awk '{print $1}' release.txt": "looks", "echo push": "looks"},
        "looks",
        quotes="*",
    ),
    Program("find fd", {"find . -name '*deploy*'": "looks", "find . -delete": "looks"}, "looks", quotes="*"),
    Program(
        "sed perl",
        {"sed -n 1,40p deploy.sh": "looks", "sed -i s/a/b/ deploy.sh": "looks"},
        "looks",
        quotes="*",
        files=(FileRule("edited", options=("-i", "-pi", "-p"), first=1), FileRule(options=("-n",), first=1)),
    ),
    Program("tee touch create", {"touch release.txt": "writes"}, "writes", quotes="*", files=(FileRule("written"),)),
    Program("rm unlink", {"rm -rf build": "writes"}, "writes", quotes="*", files=(FileRule("deleted"),)),
    Program("mv", {"mv a.py b.py": "writes"}, "writes", quotes="*", files=(FileRule("moved here", first=-1),)),
    Program("cp", {"cp a.py b.py": "writes"}, "writes", quotes="*", files=(FileRule("copied", first=-1),)),
    Program("mkdir rmdir chmod chown ln", {"mkdir -p release": "writes"}, "writes", quotes="*"),
    Program("tar unzip zip gzip gunzip patch dd truncate split", {"tar xf release.tgz": "writes"}, "writes"),
    Program(
        "ps top df du free lsof netstat ss ping dig nslookup host whoami id uname hostname uptime printenv history "
        "htop nproc lscpu tty locale",
        {"lsof -i :8080": "looks"},
        "looks",
    ),
    Program(
        "journalctl dmesg",
        {"journalctl -u shop --since today": "looks"},
        "looks",
        quotes="*",
        failed={
            "sign": {
                r"Main process exited, code=\w+, status=[1-9]": (
                    "Nov 25 09:00:57 h checkout[71]: Main process exited, code=killed, status=9/KILL"
                )
            }
        },
    ),
    Program(
        "systemctl service supervisorctl pm2 launchctl rc-service",
        {"systemctl restart nginx": "acts", "sudo service nginx restart": "acts", "systemctl status nginx": "looks"},
        "looks",
        acts="start stop restart reload enable disable mask unmask isolate kill delete bootstrap bootout load unload",
        nouns="*",
    ),
    Program("crontab", {"crontab -l": "looks", "crontab jobs.txt": "acts"}, "acts", looks_with="-l"),
    Program("shutdown reboot halt poweroff", {"sudo reboot now": "acts"}, "acts"),
    Program("mail mailx mutt sendmail msmtp swaks", {"mail -s Done ops@example.com": "acts"}, "acts"),
    Program(
        "scp rsync gsutil rclone s3cmd",
        {
            "scp release.tgz web1:/srv": "acts",
            "rsync -a web1:/srv/logs ./logs": "writes",
            "gsutil ls gs://shop": "looks",
            "gsutil rm gs://shop/a.txt": "acts",
        },
        "writes",
        looks="ls lsd lsf cat stat du size check",
        acts="rm rb mb delete purge setmeta iam mv del put",
        copies="*",
        valued="-e --exclude --include -P -i -F",
        looks_with="-n",
    ),
    # Version control.
    Program(
        "git",
        {
            "git push origin fix/retry-budget": "acts",
            "git -C repo push origin main": "acts",
            "git commit -m 'Add a field'": "acts",
            "git stash list": "looks",
            "git tag -l": "looks",
            "git tag": "looks",
            "git tag v1.2.0": "acts",
            "git pull": "writes",
            "git show --stat merge": "looks",
            "git log --grep=revert": "looks",
            "git push --dry-run origin main": "looks",
        },
        "writes",
        looks="diff log show blame grep status branch ls-files ls-tree ls-remote rev-parse rev-list merge-base "
        "cat-file describe shortlog reflog tag for-each-ref var help name-rev check-ignore count-objects fsck "
        "show-ref whatchanged stash/list stash/show remote/-v remote/show remote/get-url config/--get config/--list "
        "worktree/list",
        acts="push merge rebase cherry-pick revert commit am reset tag/* send-email",
        nouns="tag stash remote config worktree lfs subtree",
        valued="-C -c --git-dir --work-tree --namespace",
        looks_with="-l --list --contains --points-at --merged --no-merged",
        quotes="diff log show blame grep status branch ls-files ls-tree remote stash stash/list stash/show cat-file "
        "remote/show shortlog reflog rev-parse rev-list",
        speaks=("fatal: ", "error: "),
        answers="diff grep merge-base",
        files=(
            FileRule("deleted", "rm"),
            FileRule("moved here", "mv", first=-1),
            FileRule("restored", "restore"),
            FileRule("restored", "checkout", ("--",)),
        ),
        worked={
            r"\[[\w./-]+ (?:\(root-commit\) )?(?=\d*[a-f])[0-9a-f]{7,40}\] \S": "[main 4f1c09a] Moor at the new berth",
            r"[0-9a-f]{7,40}\.\.[0-9a-f]{7,40} +\S+ +-> +\S": "   7bbb35b..0edaae9  main -> main",
            r"\* \[new (?:branch|tag)\]": " * [new branch]      fix/pool -> fix/pool",
            r"fast-forward$|merge made by": "Fast-forward",
            r"successfully rebased|head is now at ": "HEAD is now at 4f1c09a Moor at the new berth",
        },
        failed={
            "aftermath": {
                "Automatic merge failed": "Automatic merge failed; fix conflicts and then commit the result."
            },
            "cause": {r"(?:CONFLICT \(|! \[(?:remote )?rejected\])": "CONFLICT (content): Merge conflict in a.go"},
        },
    ),
    Program(
        "gh glab",
        {
            "gh pr create --fill": "acts",
            "gh pr review 12 --approve": "acts",
            "gh run view 123 --log-failed": "looks",
            "gh run rerun 123": "acts",
            "gh run download 1": "writes",
            "gh workflow run ci.yml": "acts",
            "gh pr list --state merged --label review": "looks",
            "glab mr view 3": "looks",
            "gh search prs review": "looks",
            "gh api repos/acme/shop/pulls/7": "looks",
            "gh api repos/acme/shop/pulls/7/comments -f body=Fixed": "acts",
            "gh api graphql -f query='query { viewer { login } }'": "looks",
            "gh api graphql -f query='mutation { addStar(input: {}) { id } }'": "acts",
            "gh api -X DELETE repos/acme/shop/issues/7": "acts",
        },
        "looks",
        looks="view list diff checks status watch search browse run/view run/list workflow/view workflow/list ci/view "
        "ci/list",
        writes="checkout clone download auth config/set install pr/checkout repo/clone set-default setup-git",
        acts="create merge close reopen comment note edit delete review ready workflow/run run/rerun rerun cancel "
        "upload lock unlock transfer archive rename fork sync update approve revoke set remove add enable disable "
        "pin unpin update-branch retry trigger",
        nouns="pr mr issue run workflow release repo gist label secret variable ssh-key gpg-key cache project "
        "ruleset codespace extension auth config ci pipeline incident org",
        valued="-R --repo",
        acts_with="-f -F --field --raw-field --input",
        language="http",
        quotes="view list diff api search",
        worked={
            r"https?://\S+/(?:pull|issues|releases?)/\S+$": "https://github.com/acme/store/pull/158",
            r"[✓✔] (?:squashed|merged|rebased|closed|reopened|created)[^\n]* (?:pull request|issue) ": (
                "✓ Squashed and merged pull request #158 (Add a berth)"
            ),
        },
        failed={"sign": {r"X \S": "X step 57 deploy to production (exit 137)"}},
    ),
    # Requests and databases.
    Program(
        "curl wget",
        {
            "curl -s https://api.example.com/orders": "looks",
            "curl -s -X POST https://api.example.com/orders": "acts",
            """curl https://hooks.example.com/x -d '{"text": "done"}'""": "acts",
            "curl -sXDELETE https://api.example.com/orders/7": "acts",
            """curl -s https://es/orders/_search -d '{"query": {}}'""": "looks",
            """curl https://api.example.com/graphql -d '{"query": "{ viewer { login } }"}'""": "looks",
            "curl -G https://api.example.com/orders -d state=open": "looks",
            "wget --post-data=a=1 https://api.example.com": "acts",
        },
        "looks",
        acts_with="-d --data --data-raw --data-binary --data-urlencode --json -F --form -T --upload-file "
        "--post-data --post-file --body-data --body-file",
        looks_with="-G --get -I --head",
        language="http",
        quotes="*",
    ),
    Program(
        "http https xh xhs curlie",
        {
            "http POST https://api.example.com/orders a=1": "acts",
            "xh post api.example.com/orders": "acts",
            "http https://api.example.com/orders state==open X-Team:shop": "looks",
            "http https://api.example.com/orders amount:=5": "acts",
        },
        "looks",
        valued="-a --auth -o --output -s --style --timeout",
        language="http words",
        quotes="*",
    ),
    Program(
        "psql mysql mariadb sqlite3 sqlcmd clickhouse-client clickhouse cockroach duckdb cqlsh bq pgcli trino "
        "presto snowsql",
        {
            "psql -c 'select 1'": "looks",
            'psql shop -c "UPDATE orders SET state = 1"': "acts",
            "psql -h db -f migrations/7.sql": "acts",
            "sqlite3 shop.db '.tables'": "looks",
            "mysql -e 'delete from t'": "acts",
            "bq query 'SELECT count(*) FROM shop.orders'": "looks",
            "psql <<'E'\nBEGIN;\nDELETE FROM t;\nE": "acts",
            "echo 'DROP TABLE t' | sqlite3 shop.db": "acts",
        },
        "looks",
        statements="-c --command -e --execute -q --query -Q",
        acts_with="-f --file -i",
        language="sql",
        quotes="*",
        speaks=("ERROR:  ", "FATAL:  "),
    ),
    # Tools for databases take a statement as their command.
    Program("SELECT SHOW DESCRIBE DESC EXPLAIN USE WITH", {"SELECT a FROM t": "looks"}, "looks", quotes="*"),
    Program("INSERT UPDATE DELETE DROP ALTER CREATE TRUNCATE", {"DELETE FROM t": "acts"}, "acts"),
    Program("createdb dropdb createuser dropuser pg_restore mysqladmin", {"dropdb shop": "acts"}, "acts"),
    Program("pg_dump pg_dumpall mysqldump", {"pg_dump shop": "looks"}, "looks", quotes="*"),
    Program(
        "mongosh mongo",
        {
            """mongosh shop --eval 'db.orders.find({state: "open"})'""": "looks",
            "mongosh --eval 'db.orders.deleteMany({})'": "acts",
        },
        "looks",
        statements="--eval",
        language="mongo",
    ),
    Program(
        "redis-cli valkey-cli",
        {"redis-cli FLUSHALL": "acts", "redis-cli -h db -n 2 get x": "looks", "redis-cli config set save ''": "acts"},
        "looks",
        acts="set setex setnx mset del unlink flushall flushdb incr incrby decr decrby expire persist append lpush "
        "rpush lpop rpop lrem ltrim sadd srem zadd zrem hset hdel hincrby xadd xdel xtrim rename publish eval "
        "evalsha restore config/set config/rewrite shutdown save bgsave bgrewriteaof migrate failover getdel getset "
        "spop script/flush cluster/reset replicaof slaveof debug",
        nouns="config script cluster",
        valued="-h -p -a -n -u --user --pass",
    ),
    Program(
        "alembic flyway liquibase dbmate goose migrate prisma knex sequelize sequelize-cli typeorm drizzle-kit "
        "atlas sqlx diesel phinx",
        {
            "alembic upgrade head": "acts",
            "npx prisma migrate deploy": "acts",
            "alembic history": "looks",
            "prisma generate": "writes",
            "flyway info": "looks",
        },
        "writes",
        looks="history current heads show check info validate status list version branches ls",
        acts="upgrade downgrade stamp migrate up down rollback repair clean redo drop reset deploy resolve update "
        "push undo apply run revert execute latest seed",
        nouns="*",
        valued="-c -x -n --config -path -database -dir",
    ),
)
