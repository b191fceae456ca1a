"""Programs for infrastructure, clouds and platforms."""

from proxy.tools.programs import Program

SERVICE_PROGRAMS = (
    # Infrastructure.
    Program(
        "terraform tofu terragrunt pulumi cdk cdktf",
        {
            "terraform apply -auto-approve": "acts",
            "terraform -chdir=infra plan -out p": "looks",
            "terraform state rm aws_sqs_queue.q": "acts",
            "terraform state list": "looks",
            "terraform output": "looks",
            "terraform init -upgrade": "writes",
            "pulumi up --yes": "acts",
            "cdk diff": "looks",
        },
        "writes",
        looks="plan show output validate graph providers version state/list state/show state/pull preview stack "
        "logs diff ls list synth workspace/list workspace/show whoami about",
        acts="apply destroy import taint untaint force-unlock state/rm state/mv state/push up down refresh cancel "
        "deploy bootstrap run-all rollback config/set stack/rm",
        nouns="state workspace stack config",
        valued="-s --stack --cwd -C",
        worked={r"(?:apply|destroy) complete! ": "Apply complete! Resources: 1 added, 0 changed, 0 destroyed."},
    ),
    Program(
        "kubectl oc k",
        {
            "kubectl rollout undo deployment/checkout": "acts",
            "kubectl rollout status deployment/checkout": "looks",
            "kubectl -n prod delete pod x": "acts",
            "kubectl auth can-i create pods": "looks",
            "kubectl describe rollout x": "looks",
            "kubectl logs deploy/scale": "looks",
            "kubectl apply --dry-run=client -f a.yaml": "looks",
            "kubectl cp web-0:/var/log/a.log ./a.log": "writes",
        },
        "looks",
        writes="config completion port-forward proxy",
        acts="apply create delete patch replace scale autoscale set edit annotate label taint drain cordon uncordon "
        "run expose rollout/undo rollout/restart rollout/pause rollout/resume new-app start-build adm evict debug "
        "certificate/approve certificate/deny auth/reconcile",
        nouns="rollout auth certificate",
        valued="-n --namespace --context --cluster --kubeconfig -l --selector -f --filename -s --server",
        copies="cp",
        quotes="logs",
        failed={
            "sign": {
                r"\S+ +\d+/\d+ +(?:CrashLoopBackOff|ImagePullBackOff|ErrImagePull|OOMKilled|Error)\b": (
                    "checkout-abc12   0/1   CrashLoopBackOff   17   57m"
                ),
                r"\S+ +Warning  ": "57s   Warning   BackOff   pod/checkout-57   Back-off restarting container",
            }
        },
    ),
    Program(
        "helm helmfile",
        {
            "helm upgrade checkout ./chart": "acts",
            "helm upgrade --dry-run x ./chart": "looks",
            "helm get values checkout": "looks",
            "helm repo add acme https://charts.example.com": "writes",
        },
        "looks",
        writes="repo dependency package pull create plugin",
        acts="install upgrade rollback uninstall delete push sync apply destroy",
        valued="-n --namespace --kube-context -f --values -e --environment",
    ),
    Program(
        "argocd flux istioctl kustomize skaffold nomad consul vault",
        {
            "argocd app sync checkout": "acts",
            "vault kv get secret/shop": "looks",
            "vault kv put secret/shop a=1": "acts",
        },
        "looks",
        acts="sync set create delete rollback patch terminate-op reconcile suspend resume install uninstall run "
        "deploy stop put write destroy rm import enable disable revoke rotate promote dev apply",
        nouns="*",
    ),
    Program(
        "docker podman docker-compose nerdctl",
        {
            "docker push registry/checkout:v42": "acts",
            "docker compose up -d": "acts",
            "docker compose -f dev.yml ps": "looks",
            "docker build -t shop .": "runs",
            "docker run --rm shop make test": "runs",
            "docker run -d shop": "acts",
            "docker logs --tail 50 web": "looks",
            "docker volume rm shop_data": "acts",
        },
        "runs",
        looks="ps images inspect logs top stats port version info events history search ls list df config diff "
        "image/ls container/ls images/ls",
        writes="pull cp save export load import tag login image/rm image/prune",
        acts="push up down start stop restart kill rm create prune update pause unpause rename commit deploy scale "
        "connect disconnect swarm service/create stack/rm",
        nouns="compose container image volume network system builder buildx service stack node context",
        valued="-f --file -p --project-name --env-file --profile --context -H --host -c",
        acts_with="-d --detach",
        quotes="logs",
    ),
    Program(
        "ansible ansible-playbook",
        {"ansible-playbook site.yml": "acts", "ansible-playbook --check site.yml": "looks"},
        "acts",
        looks_with="--check -C --syntax-check --list-hosts --list-tasks --list-tags",
    ),
    Program("packer", {"packer build web.pkr.hcl": "acts", "packer validate .": "looks"}, "looks", acts="build"),
    # Clouds and platforms.
    Program(
        "aws gcloud az doctl linode-cli hcloud oci ibmcloud scw yc aliyun exo civo",
        {
            "aws s3 ls": "looks",
            "aws s3 rm s3://x --recursive": "acts",
            "aws s3 cp report.csv s3://shop/report.csv": "acts",
            "aws s3 cp s3://shop/report.csv .": "writes",
            "aws --profile prod ec2 terminate-instances --instance-ids i-1": "acts",
            "aws ec2 describe-instances": "looks",
            "gcloud run services list": "looks",
            "gcloud run deploy x": "acts",
            "gcloud logging read 'severity>=ERROR'": "looks",
            "az vm delete -n web1": "acts",
        },
        "looks",
        looks="describe list get show read ls tail filter wait help query lookup search check test view scan "
        "batch-get select head-object",
        writes="configure login logout config get-credentials update-kubeconfig install",
        acts="create delete rm mb rb put update deploy start stop restart reboot terminate run-instances run-task "
        "invoke send publish submit modify attach detach associate disassociate add remove set apply import enable "
        "disable cancel promote failover restore rollback execute call register deregister allocate release revoke "
        "authorize tag untag purge resize scale up down power-cycle upload transact batch-write change copy reset "
        "rotate sign approve reject grant assume activate deactivate",
        nouns="*",
        valued="--profile --region --output --project --zone --query --format --subscription -g --resource-group "
        "--account",
        copies="cp sync mv upload-batch rsync",
        looks_with="--no-execute-changeset",
    ),
    Program(
        "heroku fly flyctl railway render dokku cf eb northflank",
        {
            "heroku logs --tail": "looks",
            "heroku ps:restart web": "acts",
            "heroku config:set A=1": "acts",
            "flyctl deploy": "acts",
            "fly status": "looks",
        },
        "looks",
        writes="login auth link connect proxy console git",
        acts="deploy launch restart scale destroy create delete set unset import apps/destroy promote rollback run "
        "up down push enable disable add remove upgrade attach detach rotate suspend resume open-port redeploy stop "
        "start swap terminate kill maintenance/on maintenance/off",
        nouns="*",
        valued="-a --app -r --remote -c --config",
        quotes="logs",
    ),
    Program(
        "vercel netlify now surge",
        {"vercel --prod": "acts", "vercel logs shop": "looks", "netlify deploy --prod": "acts", "vercel dev": "writes"},
        "acts",
        looks="ls list logs inspect whoami env/ls status help open teams/ls projects/ls domains/ls api",
        writes="link env/pull login logout switch init pull dev build",
        acts="deploy rm remove alias promote rollback env/add env/rm domains/add env/set sites/create",
        nouns="env teams projects domains sites",
    ),
    Program(
        "firebase wrangler serverless sls amplify sst supabase gh-pages eas expo fastlane appcenter sam chalice "
        "zappa nest-deploy cap kamal",
        {
            "firebase deploy --only hosting": "acts",
            "wrangler secret put TOKEN": "acts",
            "sls logs -f charge": "looks",
            "wrangler dev": "runs",
            "kamal deploy": "acts",
        },
        "runs",
        looks="logs tail list ls info status whoami print diff validate functions:log",
        acts="deploy publish remove rollback delete put secret/put secret/delete push update create submit setup "
        "redeploy undeploy migrations/apply execute reset hosting:disable functions:delete release",
        nouns="*",
        valued="-c --config --project -P --stage --env",
    ),
    Program(
        "stripe twilio slack sendgrid linear jira trello asana notion todoist pagerduty opsgenie sentry-cli "
        "datadog-ci okta auth0",
        {
            "stripe charges create --amount 5": "acts",
            "stripe charges list": "looks",
            "jira issue view SHOP-12": "looks",
            "jira issue move SHOP-12 Done": "acts",
            "sendgrid send": "acts",
        },
        "looks",
        acts="create delete update cancel capture confirm post send refund trigger void pay finalize close reopen "
        "assign move comment add remove edit transition resolve ack link unlink clone set upload upload-sourcemaps "
        "new deploys releases/finalize resend attach detach",
        nouns="*",
    ),
    Program(
        "kafka-topics kafka-topics.sh kafka-configs kafka-configs.sh kafka-acls kafka-acls.sh",
        {"kafka-topics.sh --list": "looks", "kafka-topics.sh --delete --topic orders": "acts"},
        "looks",
        acts_with="--create --delete --alter --add --remove",
    ),
    Program(
        "kafka-console-producer kafka-console-producer.sh mosquitto_pub useradd usermod userdel passwd iptables ufw "
        "certbot",
        {"mosquitto_pub -t berth/7 -m open": "acts", "ufw status": "looks"},
        "acts",
        looks="status certificates",
        looks_with="-L --list -S",
    ),
    Program(
        "nats rabbitmqctl rabbitmqadmin etcdctl consul-kv temporal airflow dagster prefect dbt celery",
        {
            "rabbitmqctl purge_queue mail": "acts",
            "etcdctl get --prefix /": "looks",
            "airflow dags trigger daily": "acts",
        },
        "looks",
        acts="pub publish purge purge_queue delete_queue delete put del set trigger start run cancel terminate "
        "signal backfill pause unpause stop_app reset seed deploy control upgrade migrate clear add create",
        nouns="*",
    ),
    Program(
        "hg svn jj p4 fossil sl",
        {"hg push": "acts", "svn commit -m Fix": "acts", "jj log": "looks"},
        "writes",
        looks="log diff status st show cat info annotate blame list ls summary branches bookmarks opened describe",
        acts="push commit ci submit merge rebase backout import tag git/push",
        nouns="git",
    ),
)
