"""What of a message a model reads."""

import json

import pytest

from proxy.models.tokenizer import MEDIA_TOKENS, MESSAGE_TOKENS, SMALL_PICTURE_TOKENS, TOOL_CALL_TOKENS, weigh


def weight_of(message):
    return weigh(json.dumps(message).encode())


PNG = "data:image/png;base64," + "iVBORw0KGgo" * 1_000


def picture(url, **how):
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url, **how}}]}


def test_the_texts_of_a_message_are_its_content_name_and_calls_but_no_ids():
    call = {"id": "call_9f8e7d", "type": "function", "function": {"name": "Read", "arguments": '{"path":"a.py"}'}}
    weight = weight_of({"role": "assistant", "content": "Let me look.", "tool_calls": [call]})
    assert weight.texts == ["Let me look.", "Read", '{"path":"a.py"}']
    assert weight.markup == MESSAGE_TOKENS + TOOL_CALL_TOKENS


def test_content_in_parts_weighs_what_the_same_text_weighs():
    plain = weight_of({"role": "user", "content": "hello"})
    parts = weight_of({"role": "user", "content": [{"type": "text", "text": "hello"}]})
    assert (parts.texts, parts.markup) == (plain.texts, plain.markup)


def test_arguments_that_are_an_object_are_read_as_json():
    call = {"type": "function", "function": {"name": "Read", "arguments": {"path": "a.py"}}}
    assert weight_of({"role": "assistant", "tool_calls": [call]}).texts == ["Read", '{"path": "a.py"}']


def test_f20_a_picture_is_never_counted_as_base64():
    weight = weight_of(picture(PNG))
    assert (weight.texts, weight.media) == ([], MEDIA_TOKENS["image_url"])
    assert weight.unread > 11_000


def test_a_picture_in_low_detail_has_the_base_price():
    assert weight_of(picture(PNG, detail="low")).media == SMALL_PICTURE_TOKENS


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_image", "image_url": PNG},
        {"type": "image_url", "image_url": PNG},
        {"type": "text", "text": PNG},
    ],
)
def test_pictures_are_known_in_every_dialect(part):
    weight = weight_of({"role": "tool", "content": [part]})
    assert (weight.media, weight.texts) == (MEDIA_TOKENS["image_url"], [])


def test_audio_and_files_have_a_fixed_price():
    audio = {"type": "input_audio", "input_audio": {"data": "A" * 90_000, "format": "wav"}}
    paper = {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA", "filename": "a.pdf"}}
    both = weight_of({"role": "user", "content": [audio, paper]})
    assert both.media == MEDIA_TOKENS["input_audio"] + MEDIA_TOKENS["file"]
    assert weight_of({"role": "assistant", "audio": {"id": "audio_1"}}).media == MEDIA_TOKENS["input_audio"]


def test_encrypted_thoughts_and_signatures_are_not_counted():
    details = [
        {"type": "reasoning.text", "text": "Hm.", "signature": "S" * 5000},
        {"type": "reasoning.encrypted", "data": "E" * 5000},
    ]
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    call["extra_content"] = {"google": {"thought_signature": "T" * 5000, "version": 3}}
    weight = weight_of({"role": "assistant", "content": None, "reasoning_details": details, "tool_calls": [call]})
    assert sorted(weight.texts) == ["Hm.", "f", "{}"]


def test_reasoning_under_two_names_counts_once():
    twice = {"role": "assistant", "content": "Yes.", "reasoning": "Hm, so.", "reasoning_content": "Hm, so."}
    assert weight_of(twice).texts == ["Yes.", "Hm, so."]


def test_a_value_without_a_role_is_read_as_json():
    tool = b'{"type":"function","function":{"name":"Read","parameters":{"type":"object"}}}'
    assert weigh(tool).texts == [tool.decode()]
    assert weigh(b"[" + tool + b"]").texts == [f"[{tool.decode()}]"]


def test_half_a_surrogate_pair_does_not_hinder_the_counting():
    assert weigh(rb'{"role":"user","content":"cut \ud83d"}').texts == ["cut \ud83d"]


def test_text_that_cannot_be_parsed_is_weighed_as_text():
    assert weigh(b'{"role":').texts == ['{"role":']
    assert weigh(b"[" * 100_000).texts == ["[" * 100_000]
