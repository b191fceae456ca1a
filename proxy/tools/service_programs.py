"""Programs for infrastructure, clouds and platforms."""

from proxy.tools.programs import Program

_ACTS = (
    "create delete rm mb rb put set unset update deploy redeploy undeploy launch start stop restart reboot "
    "terminate kill destroy invoke send post publish pub submit modify attach detach associate disassociate add "
    "remove apply import enable disable cancel promote failover restore rollback execute call register deregister "
    "allocate release revoke authorize tag untag purge purge_queue resize scale up down upload copy reset rotate "
    "sign approve reject grant assign activate deactivate trigger sync patch suspend resume pause unpause write "
    "move comment edit transition capture confirm refund pay void close reopen resolve ack run-instances run-task "
    "backfill clear seed control"
)
"""Verbs of services, whose commands are PROGRAM NOUN VERB, with one noun or several."""
_LOOKS = (
    "describe list get show read ls tail logs status info view search query filter lookup check test scan select "
    "help wait head-object batch-get get-credentials update-kubeconfig configure login logout auth config"
)
SERVICE_PROGRAMS = (
    Program(
        "aws gcloud az doctl hcloud oci ibmcloud aliyun",
        {
            "aws s3 ls": False,
            "aws s3 rm s3://x --recursive": True,
            "aws s3 cp report.csv s3://shop/report.csv": True,
            "aws s3 cp s3://shop/report.csv .": False,
            "aws --profile prod ec2 terminate-instances --instance-ids i-1": True,
            "gcloud run deploy x": True,
            "gcloud container clusters get-credentials shop": False,
            "az vm delete -n web1": True,
        },
        acts=_ACTS,
        harmless=_LOOKS,
        nouns="*",
        valued="--profile --region --output --project --zone --query --format --subscription -g --resource-group",
        copies="cp sync mv upload-batch rsync",
    ),
    Program(
        "heroku fly flyctl railway render cf eb firebase wrangler serverless sls amplify sst supabase eas sam "
        "argocd flux istioctl skaffold nomad consul vault etcdctl nats rabbitmqctl rabbitmqadmin temporal airflow "
        "dagster prefect stripe twilio slack sendgrid linear jira trello notion pagerduty opsgenie sentry-cli okta "
        "auth0",
        {
            "heroku logs --tail": False,
            "heroku ps:restart web": True,
            "flyctl deploy": True,
            "firebase deploy --only hosting": True,
            "wrangler dev": False,
            "wrangler secret put TOKEN": True,
            "argocd app sync checkout": True,
            "rabbitmqctl purge_queue mail": True,
            "airflow dags trigger daily": True,
            "stripe charges create --amount 5": True,
            "stripe charges list": False,
            "jira issue move SHOP-12 Done": True,
            "sendgrid send": True,
        },
        acts=f"{_ACTS} run maintenance:on maintenance:off",
        harmless=f"{_LOOKS} emulators:start",
        nouns="*",
        valued="-a --app -c --config -p --project -P --stage --env",
        quotes="logs",
    ),
    Program(
        "terraform tofu terragrunt pulumi cdk cdktf",
        {
            "terraform apply -auto-approve": True,
            "terraform -chdir=infra plan -out p": False,
            "terraform state rm aws_sqs_queue.q": True,
            "terraform state list": False,
            "pulumi up --yes": True,
        },
        acts="apply destroy import taint untaint force-unlock state/rm state/mv state/push up down refresh cancel "
        "deploy bootstrap run-all rollback config/set stack/rm",
        harmless="state/list state/show state/pull workspace/list workspace/show",
        nouns="state workspace stack config",
        valued="-s --stack --cwd -C",
    ),
    Program(
        "kubectl oc k",
        {
            "kubectl rollout undo deployment/checkout": True,
            "kubectl rollout status deployment/checkout": False,
            "kubectl -n prod delete pod x": True,
            "kubectl auth can-i create pods": False,
            "kubectl logs deploy/scale": False,
            "kubectl apply --dry-run=client -f a.yaml": False,
            "kubectl cp web-0:/var/log/a.log ./a.log": False,
        },
        acts="apply create delete patch replace scale autoscale set edit annotate label taint drain cordon uncordon "
        "run expose rollout/undo rollout/restart rollout/pause rollout/resume new-app start-build adm evict debug "
        "certificate/approve certificate/deny auth/reconcile",
        nouns="rollout auth certificate",
        valued="-n --namespace --context --cluster --kubeconfig -l --selector -f --filename -s --server",
        copies="cp",
        quotes="logs",
    ),
    Program(
        "helm helmfile",
        {
            "helm upgrade checkout ./chart": True,
            "helm upgrade --dry-run x ./chart": False,
            "helm repo add acme https://charts.example.com": False,
        },
        acts="install upgrade rollback uninstall delete push sync apply destroy",
        valued="-n --namespace --kube-context -f --values -e --environment",
    ),
    Program(
        "docker podman docker-compose nerdctl",
        {
            "docker push registry/checkout:v42": True,
            "docker compose up -d": True,
            "docker build -t shop .": False,
            "docker buildx build --push -t registry/shop .": True,
            "docker run --rm shop make test": False,
            "docker run -d shop": True,
            "docker logs --tail 50 web": False,
            "docker volume rm shop_data": True,
        },
        acts="push up down start stop restart kill rm create prune update pause unpause rename commit deploy scale "
        "connect disconnect swarm service/create stack/rm",
        harmless="ps images inspect logs top stats port version info events history search ls list df config diff "
        "image/ls container/ls images/ls pull cp save export load import tag login image/rm image/prune",
        nouns="compose container image volume network system builder buildx service stack node context",
        valued="-f --file -p --project-name --env-file --profile --context -H --host -c",
        acts_with="-d --detach --push",
        quotes="logs",
    ),
    Program(
        "ansible ansible-playbook",
        {"ansible-playbook site.yml": True, "ansible-playbook --check site.yml": False},
        acts="*",
        harmless_with="--check -C --syntax-check --list-hosts --list-tasks --list-tags",
    ),
    Program("packer", {"packer build web.pkr.hcl": True, "packer validate .": False}, acts="build"),
    Program(
        "vercel netlify surge",
        {"vercel --prod": True, "vercel logs shop": False, "netlify deploy --prod": True, "vercel dev": False},
        acts="*",
        harmless="ls list logs inspect whoami status help open api link login logout switch init pull dev build",
        nouns="env teams projects domains sites",
    ),
    Program(
        "kafka-topics kafka-topics.sh kafka-configs kafka-configs.sh kafka-acls kafka-acls.sh",
        {"kafka-topics.sh --list": False, "kafka-topics.sh --delete --topic orders": True},
        acts_with="--create --delete --alter --add --remove",
    ),
    Program(
        "kafka-console-producer kafka-console-producer.sh mosquitto_pub useradd usermod userdel passwd iptables ufw "
        "certbot",
        {"mosquitto_pub -t berth/7 -m open": True, "ufw status": False},
        acts="*",
        harmless="status certificates",
        harmless_with="-L --list -S",
    ),
    Program(
        "hg svn jj p4 fossil sl",
        {"hg push": True, "svn commit -m Fix": True, "jj log": False},
        acts="push commit ci submit merge rebase backout import tag git/push",
        nouns="git",
    ),
)
