"""Summaries as models write them in five languages: none that is fine is refused, none in another's letters is taken.

Paths, identifiers and headings are in no language. A summary may be full of them, and a user may have pasted pages of
a log around five words of their own.
"""
# ruff: noqa: RUF001 (the letters and the commas of other scripts are the point)

import pytest

from proxy.config.policies import read_prompt
from proxy.shorten.pipeline import estimate_tokens
from proxy.shorten.summary import SummaryReply, judge_answer

PROSE = """## Goals and constraints
{0}

## Done
{1}

## Files
- src/auth/session.ts: isExpired() {2}

## Errors
None

## Active work
{3}"""
TOLD = {
    "english": PROSE.format(
        '"Mend the login in src/auth/session.ts, and do not touch the public API."',
        "The expiry was compared in seconds against milliseconds; session.ts compares both in milliseconds now.",
        "changed, done.",
        "Bring docs/auth.md up to date, as the user asked last.",
    ),
    "german": PROSE.format(
        "„Repariere die Anmeldung in src/auth/session.ts und ändere die öffentliche Schnittstelle nicht.“",
        "Der Ablauf wurde in Sekunden mit Millisekunden verglichen; jetzt vergleicht session.ts beides gleich.",
        "geändert, fertig.",
        "docs/auth.md auf den neuen Stand bringen.",
    ),
    "russian": PROSE.format(
        "«Почини вход в src/auth/session.ts и не трогай публичный API.»",
        "Срок жизни сравнивали в секундах с миллисекундами; теперь session.ts сравнивает оба в миллисекундах.",
        "изменена, готово.",
        "Обновить docs/auth.md.",
    ),
    "chinese": PROSE.format(
        "“修复 src/auth/session.ts 的登录问题，不要改动公共接口。”",
        "过期时间把秒和毫秒混在一起比较，现在 session.ts 统一用毫秒。auth 的 41 个测试全部通过。",
        "已修改。",
        "更新 docs/auth.md。",
    ),
    "japanese": PROSE.format(
        "「src/auth/session.ts のログインを直して。公開 API は変えないで。」",
        "有効期限を秒とミリ秒で比べていたので、session.ts を両方ミリ秒にそろえた。テスト 41 件はすべて通った。",
        "を変更済み。",
        "docs/auth.md を更新する。",
    ),
}
SAID = {
    "english": "Please mend the login in src/auth/session.ts, and do not touch the public API.",
    "german": "Repariere bitte die Anmeldung in src/auth/session.ts, und ändere die öffentliche Schnittstelle nicht.",
    "russian": "Почини, пожалуйста, вход в src/auth/session.ts и не трогай публичный API.",
    "chinese": "请修复 src/auth/session.ts 的登录问题，不要改动公共接口。谢谢。",
    "japanese": "src/auth/session.ts のログインを直してください。公開 API は変えないでください。",
}
# No letters tell these two apart.
LATIN = ("english", "german")
CODE = """## Goals and constraints
{0}

## Done
- `src/components/auth/LoginForm.tsx`: useAuthSession() -> useSession(), handleSubmit() {1}
- `packages/session-store/src/createSessionStore.ts`: SESSION_TTL_MS = 3_600_000 {1}
- `apps/web/next.config.mjs`, `apps/web/middleware.ts`, `.github/workflows/ci.yml` {1}

## Files
- /home/dev/shop/packages/session-store/src/createSessionStore.ts
- /home/dev/shop/src/components/auth/LoginForm.tsx
- /home/dev/shop/apps/web/middleware.ts

## Errors
```
TypeError: Cannot read properties of undefined (reading 'expiresAt')
    at isExpired (/home/dev/shop/packages/session-store/src/isExpired.ts:41:18)
    at async middleware (/home/dev/shop/apps/web/middleware.ts:12:5)
```

## Active work
pnpm --filter session-store test -- --run isExpired.test.ts; {2}

## Identifiers
SESSION_TTL_MS, createSessionStore, useAuthSession, PR-4182, feature/session-expiry"""
IN_CODE = {
    "english": CODE.format("Mend the login.", "changed", "then the docs."),
    "german": CODE.format("Anmeldung reparieren.", "geändert", "dann die Doku nachziehen."),
    "russian": CODE.format("Починить вход.", "изменено", "затем обновить описание."),
    "chinese": CODE.format("修复登录问题。", "已修改", "然后更新文档。"),
    "japanese": CODE.format("ログインを直す。", "変更した", "その後ドキュメントを更新する。"),
}
LOG = "\n".join(
    f"ERROR worker {number} could not connect to the server, it will try again later" for number in range(90)
)
FORMS = {"prose": TOLD, "code": IN_CODE}


def why(text, words):
    headings = read_prompt("structured").headings
    return judge_answer(
        SummaryReply(text), weight=100_000, most=4_000, headings=headings, words=words, count=estimate_tokens
    ).why


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("language", SAID)
def test_a_summary_in_the_language_of_its_user_is_taken(language, form):
    assert why(FORMS[form][language], SAID[language]) == ""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("language", SAID)
def test_however_much_of_a_log_the_user_has_pasted(language, form):
    assert why(FORMS[form][language], f"{SAID[language]}\n{LOG}") == ""


@pytest.mark.parametrize("told", TOLD)
@pytest.mark.parametrize("said", SAID)
def test_f23_a_summary_in_the_letters_of_another_language_is_none(said, told):
    alike = said == told or {said, told} <= set(LATIN)
    assert why(TOLD[told], SAID[said]) == ("" if alike else "language")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("Διόρθωσε τη σύνδεση στο session.ts, σε παρακαλώ.", "Διορθώθηκε η σύνδεση και περνούν όλες οι δοκιμές."),
        ("תקן בבקשה את ההתחברות ב session.ts", "ההתחברות תוקנה וכל הבדיקות עוברות עכשיו."),
        ("أصلح تسجيل الدخول من فضلك", "تم إصلاح تسجيل الدخول وكل الاختبارات تنجح الآن."),
        ("कृपया session.ts में लॉगिन ठीक करें", "लॉगिन ठीक कर दिया गया और सभी परीक्षण सफल हैं।"),
        ("ช่วยแก้การเข้าสู่ระบบด้วยครับ", "แก้ไขการเข้าสู่ระบบแล้วและการทดสอบผ่านทั้งหมด"),
        (
            "로그인을 고쳐 주세요 부탁드립니다 감사합니다",
            "로그인을 고쳤고 모든 테스트가 통과했습니다. 문서가 남았습니다.",
        ),
    ],
    ids=["greek", "hebrew", "arabic", "hindi", "thai", "korean"],
)
def test_f23_each_script_is_known(words, text):
    whole = "\n\n".join(f"## {heading}\n{text}" for heading in read_prompt("structured").headings)
    assert why(whole, words) == ""
    assert why(whole, SAID["english"]) == why(TOLD["english"], words) == "language"


def test_a_quotation_of_the_user_does_not_make_a_summary_theirs():
    """Constraints are quoted word for word, in whatever language the rest is written."""
    text = (
        TOLD["english"].replace("Mend the login", "Почини вход")
        + "\n"
        + "Nothing else was asked for in this conversation. " * 20
    )
    assert why(text, SAID["russian"]) == "language"


def test_naming_a_word_of_another_script_is_not_writing_in_it():
    assert why(TOLD["russian"], f"{SAID['english']} The button says «Войти». {LOG}") == "language"
