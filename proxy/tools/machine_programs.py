"""Programs for files, texts, version control, requests and databases."""

from proxy.tools.programs import FileRule, Program

MACHINE_PROGRAMS = (
    Program(
        "cat head tail less more nl bat tac open",
        {"tail -n 40 deploy.log": False},
        quotes="*",
        files=(FileRule(valued="-l --language"),),
    ),
    Program("grep egrep fgrep rg ag ack diff cmp comm zgrep", {"grep -rn deploy src/": False}, quotes="*", answers="*"),
    Program("test [ [[ pgrep which type", {"test -f deploy.sh": False}, quotes="*", answers="*"),
    Program(
        "ls tree wc awk gawk jq yq sort uniq cut tr echo printf cd pwd stat file man sleep true false : export set "
        "read column strings xxd od hexdump exit return shopt date seq base64 basename dirname realpath readlink "
        "md5sum sha256sum shasum unset pushd popd wait local declare tshark zcat find fd journalctl dmesg pg_dump "
        "pg_dumpall mysqldump rmdir chmod chown ln",
        {
            "awk '{print $1}' release.txt": False,
            "echo push": False,
            "find . -name '*deploy*'": False,
            "find . -delete": False,
            "journalctl -u shop --since today": False,
            "pg_dump shop": False,
        },
        quotes="*",
    ),
    Program(
        "sed perl",
        {"sed -n 1,40p deploy.sh": False, "sed -i s/a/b/ deploy.sh": False},
        quotes="*",
        files=(
            FileRule("edited if anything matched", options=("-i", "-pi"), unless=("-e",), first=1),
            FileRule("edited if anything matched", options=("-i", "-pi"), valued="-e"),
            FileRule(options=("-n",), unless=("-e",), first=1),
            FileRule(options=("-n",), valued="-e"),
        ),
    ),
    Program("tee create", {"echo a | tee release.txt": False}, quotes="*", files=(FileRule("written"),)),
    Program(
        "touch",
        {"touch release.txt": False},
        quotes="*",
        files=(FileRule("made if it was not there", valued="-d -t -r"),),
    ),
    # With -i a person answers for each file, or nobody does.
    Program("rm unlink", {"rm -rf build": False}, quotes="*", files=(FileRule("deleted", unless=("-i", "-I")),)),
    Program(
        "mv",
        {"mv a.py b.py": False},
        quotes="*",
        files=(FileRule("moved here", unless=("-t", "--target", "-n"), first=-1, valued="-S"),),
    ),
    Program(
        "cp",
        {"cp a.py b.py": False},
        quotes="*",
        files=(FileRule("copied", unless=("-t", "--target", "-n"), first=-1),),
    ),
    Program("mkdir", {"mkdir -p release": False}, quotes="*", files=(FileRule("made", valued="-m --mode"),)),
    Program(
        "ps top df du free lsof netstat ss ping dig nslookup host whoami id uname hostname uptime printenv history "
        "htop nproc lscpu tty locale kill pkill killall tar unzip zip gzip gunzip patch dd truncate split tmux "
        "screen kind minikube k3d vagrant bazel",
        {"lsof -i :8080": False, "tar xf release.tgz": False, "kind create cluster": False},
    ),
    Program(
        "systemctl service supervisorctl pm2 launchctl rc-service",
        {"systemctl restart nginx": True, "sudo service nginx restart": True, "systemctl status nginx": False},
        acts="start stop restart reload enable disable mask unmask isolate kill delete bootstrap bootout load unload",
        nouns="*",
    ),
    Program("crontab", {"crontab -l": False, "crontab jobs.txt": True}, acts="*", harmless_with="-l"),
    Program("nginx apachectl", {"nginx -s reload": True, "nginx -t": False}, acts_with="-s -k"),
    Program("shutdown reboot halt poweroff", {"sudo reboot now": True}, acts="*"),
    Program("mail mailx mutt sendmail msmtp swaks", {"mail -s Done ops@example.com": True}, acts="*"),
    Program(
        "scp rsync gsutil rclone s3cmd",
        {
            "scp release.tgz web1:/srv": True,
            "rsync -a web1:/srv/logs ./logs": False,
            "gsutil ls gs://shop": False,
            "gsutil rm gs://shop/a.txt": True,
        },
        acts="rm rb mb delete purge setmeta iam mv del put",
        harmless="ls lsd lsf cat stat du size check",
        valued="-e --exclude --include -P -i -F",
        harmless_with="-n",
        copies="*",
    ),
    Program(
        "git",
        {
            "git push origin fix/retry-budget": True,
            "git -C repo push origin main": True,
            "git commit -m 'Add a field'": True,
            "git stash list": False,
            "git stash push -m half": False,
            "git tag": False,
            "git tag v1.2.0": True,
            "git pull": False,
            "git show --stat merge": False,
            "git log --grep=revert": False,
            "git push --dry-run origin main": False,
        },
        acts="push merge rebase cherry-pick revert commit am reset tag/* send-email",
        harmless="stash/push stash/pop stash/apply stash/drop stash/clear",
        nouns="tag stash remote lfs subtree",
        valued="-C -c --git-dir --work-tree --namespace --source --depth --branch -b",
        harmless_with="-l --list --contains --points-at --merged --no-merged",
        quotes="diff log show blame grep status branch ls-files ls-tree remote remote/show stash/list stash/show "
        "cat-file shortlog reflog rev-parse rev-list merge-base",
        speaks=("fatal: ", "error: "),
        restores="checkout switch restore reset stash stash/push stash/pop stash/apply merge pull rebase revert "
        "cherry-pick am",
        discards="checkout switch stash stash/push clean",
        discards_with="--hard --merge --keep",
        keeps_with="-b -B -c --create -n --",
        answers="diff grep merge-base",
        files=(
            FileRule("deleted", "rm", unless=("--cached", "-n", "--pathspec")),
            FileRule("moved here", "mv", unless=("-n",), first=-1),
            FileRule("restored if it differed", "restore", unless=("--staged", "-S", "--pathspec"), valued="-s"),
            FileRule("restored if it differed", "checkout", behind="--"),
            FileRule("restored if it differed", "checkout", options=("--theirs", "--ours")),
            FileRule("made", "init", valued="--initial-branch"),
            FileRule("made", "clone", first=1, valued="-o --origin"),
        ),
    ),
    Program(
        "gh glab",
        {
            "gh pr create --fill": True,
            "gh pr review 12 --approve": True,
            "gh run rerun 123": True,
            "gh workflow run ci.yml": True,
            "gh pr list --state merged --label review": False,
            "gh search prs review": False,
            "gh api repos/acme/shop/pulls/7": False,
            "gh api repos/acme/shop/pulls/7/comments -f body=Fixed": True,
            "gh api graphql -f query='query { viewer { login } }'": False,
            "gh api graphql -f query='mutation { addStar(input: {}) { id } }'": True,
            "gh api -X DELETE repos/acme/shop/issues/7": True,
        },
        acts="create merge close reopen comment note edit delete review ready workflow/run run/rerun rerun cancel "
        "upload lock unlock transfer archive rename fork sync update approve revoke set remove add enable disable "
        "pin unpin update-branch retry trigger",
        harmless="view list diff checks status watch search browse run/view run/list workflow/view workflow/list "
        "ci/view ci/list checkout clone download auth config/set install pr/checkout repo/clone set-default "
        "setup-git",
        nouns="pr mr issue run workflow release repo gist label secret variable ssh-key gpg-key cache project "
        "ruleset codespace extension auth config ci pipeline incident org",
        valued="-R --repo",
        acts_with="-f -F --field --raw-field --input",
        language="http",
        quotes="view list diff api search",
    ),
    Program(
        "curl wget",
        {
            "curl -s https://api.example.com/orders": False,
            "curl -s -X POST https://api.example.com/orders": True,
            """curl https://hooks.example.com/x -d '{"text": "done"}'""": True,
            "curl -sXDELETE https://api.example.com/orders/7": True,
            """curl -s https://es/orders/_search -d '{"query": {}}'""": False,
            """curl https://api.example.com/graphql -d '{"query": "{ viewer { login } }"}'""": False,
            "curl -G https://api.example.com/orders -d state=open": False,
            "wget --post-data=a=1 https://api.example.com": True,
        },
        harmless_with="-G --get -I --head",
        acts_with="-d --data --data-raw --data-binary --data-urlencode --json -F --form -T --upload-file "
        "--post-data --post-file --body-data --body-file",
        language="http",
        quotes="*",
    ),
    Program(
        "http https xh xhs curlie",
        {
            "http POST https://api.example.com/orders a=1": True,
            "xh post api.example.com/orders": True,
            "http https://api.example.com/orders state==open X-Team:shop": False,
            "http https://api.example.com/orders amount:=5": True,
        },
        valued="-a --auth -o --output -s --style --timeout",
        language="http",
        quotes="*",
    ),
    Program(
        "psql mysql mariadb sqlite3 sqlcmd clickhouse-client clickhouse cockroach duckdb cqlsh bq pgcli trino "
        "presto snowsql",
        {
            "psql -c 'select 1'": False,
            'psql shop -c "UPDATE orders SET state = 1"': True,
            "psql -h db -f migrations/7.sql": True,
            "mysql -e 'delete from t'": True,
            "bq query 'SELECT count(*) FROM shop.orders'": False,
            "psql <<'E'\nBEGIN;\nDELETE FROM t;\nE": True,
            "echo 'DROP TABLE t' | sqlite3 shop.db": True,
            "cat migrations/7.sql | psql shop": True,
            "psql -c 'select 1 -- ; delete from t'": False,
            """psql -c "select '--'; delete from t\"""": True,
            "psql -c 'select shop.create_order(7)'": True,
        },
        acts_with="-f --file -i",
        language="sql",
        quotes="*",
        speaks=("ERROR:  ", "FATAL:  "),
    ),
    Program(
        "mongosh mongo",
        {
            """mongosh shop --eval 'db.orders.find({state: "open"})'""": False,
            "mongosh --eval 'db.orders.deleteMany({})'": True,
            "mongosh --eval 'while (n--) db.orders.insertOne({n})'": True,
            "mongosh --eval 'db.orders.find() // db.orders.drop()'": False,
            "mongosh --eval 'db = connect(`mongodb://db/shop`); db.orders.drop()'": True,
            """mongosh --eval "print('It\\'s // here'); db.orders.drop()\"""": True,
            """mongosh --eval 'load("migration.js")'""": True,
        },
        acts_with="-f --file",
        language="mongodb",
        quotes="*",
    ),
    # Tools for databases take a statement as their command.
    Program("SELECT SHOW DESCRIBE DESC EXPLAIN USE WITH", {"SELECT a FROM t": False}, quotes="*"),
    Program("INSERT UPDATE DELETE DROP ALTER CREATE TRUNCATE", {"DELETE FROM t": True}, acts="*"),
    Program("createdb dropdb createuser dropuser pg_restore mysqladmin", {"dropdb shop": True}, acts="*"),
    Program(
        "redis-cli valkey-cli",
        {"redis-cli FLUSHALL": True, "redis-cli -h db -n 2 get x": False, "redis-cli config set save ''": True},
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
            "alembic upgrade head": True,
            "npx prisma migrate deploy": True,
            "alembic history": False,
            "prisma migrate status": False,
        },
        acts="upgrade downgrade stamp migrate up down rollback repair clean redo drop reset deploy resolve update "
        "push undo apply run revert execute latest seed",
        harmless="migrate/status history current heads show check info validate status list version branches ls",
        nouns="*",
        valued="-c -x -n --config -path -database -dir",
    ),
)
