#!/usr/bin/env python3
"""Random conversations through the library's chat formats and through the models' own templates.

    compare_chat.py PROGRAM [--conversations N] [--seed N] [FOLDER ...]

PROGRAM is the program built of test/text/tokenize.c. Templates are the *.jinja files below the
FOLDERs, those that the PyPI package trl has collected from published checkpoints, and those of
OWN_TEMPLATES, written after published ones (but for glm4) as far as messages without tools go. The
library says which format a template is. If it knows it, both must make the same text of each
conversation, with and without the mark of an answer and thinking, or both must refuse it. The
templates named in EXPECTED must be known, and as what they are. Vicuna's texts are those of the
PyPI package fschat.

The texts are then tokenized, with the tokenizers below the FOLDERs to which a format's marks are
added: of contents without special tokens the ids must be those that the package tokenizers makes of
the whole text; of others, the special tokens must be those of the marks, and the ids must decode to
the same text.
"""
import argparse, datetime, json, os, random, sys, tempfile

import jinja2, jinja2.ext, jinja2.sandbox
from tokenizers import AddedToken, Tokenizer

from compare_tokenizers import Library, any_text

# After https://huggingface.co/teknium/OpenHermes-2.5-Mistral-7B (chatml),
# https://huggingface.co/microsoft/phi-4, https://huggingface.co/Qwen/Qwen3-8B (April 2025),
# https://huggingface.co/Qwen/Qwen2-7B-Instruct, https://huggingface.co/zai-org/GLM-Z1-9B-0414,
# https://huggingface.co/zai-org/GLM-4.6 (as llama.cpp has it, models/templates/GLM-4.6.jinja),
# https://huggingface.co/microsoft/Phi-4-mini-instruct (as it is in guidance/chat.py of
# https://github.com/guidance-ai/guidance), and those of Mistral-7B-Instruct-v0.2,
# Mistral-Large-Instruct-2407 and -2411 and Mistral-Nemo-Instruct-2407 that
# https://github.com/ggml-org/llama.cpp has (tests/test-chat-template.cpp); the first one of Nemo is
# in https://github.com/huggingface/huggingface.js (packages/jinja/test/e2e.test.js).
# glm4 is glmz1 without thinking: no published template of GLM-4-0414 was found.
TURN = "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
ANSWER = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
EACH = "{% for message in messages %}"
GLM = ("[gMASK]<sop>\n{%- if tools -%}\n<|system|>\n{%- for tool in tools %}\n"
       "{{ tool | tojson }}\n{%- endfor %}\n{%- endif -%}\n\n{%- for msg in messages %}\n"
       "    {%- if msg.role == 'system' %}\n<|system|>\n{{ msg.content }}\n    {%- endif %}\n"
       "{%- endfor %}\n\n{%- for message in messages if message.role != 'system' %}\n"
       "    {%- set role = message['role'] %}\n    {%- set content = message['content'] %}\nVISIBLE"
       "    {%- set meta = message.get(\"metadata\", \"\") %}\n\n    {%- if role == 'user' %}\n"
       "<|user|>\n{{ TEXT }}\n    {%- elif role == 'assistant' and not meta %}\n<|assistant|>\n"
       "{{ TEXT }}\n    {%- elif role == 'assistant' and meta %}\n<|assistant|>{{ meta }}\n"
       "{{ TEXT }}\n"
       "    {%- elif role == 'observation' %}\n<|observation|>\n{{ TEXT }}\n    {%- endif %}\n"
       "{%- endfor %}\n"
       "{% if add_generation_prompt %}<|assistant|>PROMPT{% endif %}")
GLM4_5 = (
    "[gMASK]<sop>\n{%- if tools -%}\n<|system|>\n{{ tools | tojson }}{%- endif -%}\n"
    "{%- macro visible_text(content) -%}\n    {%- if content is string -%}\n"
    "        {{- content }}\n    {%- elif content is iterable and content is not mapping -%}\n"
    "        {{- content[0] }}\n    {%- else -%}\n        {{- content }}\n    {%- endif -%}\n"
    "{%- endmacro -%}\n{%- set ns = namespace(last_user_index=-1) %}\n{%- for m in messages %}\n"
    "    {%- if m.role == 'user' %}\n        {% set ns.last_user_index = loop.index0 -%}\n"
    "    {%- endif %}\n{%- endfor %}\n{% for m in messages %}\n"
    "{%- if m.role == 'user' -%}<|user|>\n"
    "{{ visible_text(m.content) }}\n{{- '/nothink' if (enable_thinking is defined and not "
    "enable_thinking and not visible_text(m.content).endswith(\"/nothink\")) else '' -}}\n"
    "{%- elif m.role == 'assistant' -%}\n<|assistant|>\n{%- set reasoning_content = '' %}\n"
    "{%- set content = visible_text(m.content) %}\n{%- if m.reasoning_content is string %}\n"
    "    {%- set reasoning_content = m.reasoning_content %}\n{%- else %}\n"
    "    {%- if '</think>' in content %}\n        {%- set reasoning_content = "
    "content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}\n"
    "        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}\n"
    "    {%- endif %}\n{%- endif %}\n"
    "{%- if loop.index0 > ns.last_user_index and reasoning_content -%}\n"
    "{{ '\\n<think>' + reasoning_content.strip() +  '</think>'}}\n{%- else -%}\n"
    "{{ '\\n<think></think>' }}\n{%- endif -%}\n{%- if content.strip() -%}\n"
    "{{ '\\n' + content.strip() }}\n{%- endif -%}\n{% if m.tool_calls %}\n"
    "{{ m.tool_calls | tojson }}\n{% endif %}\n{%- elif m.role == 'tool' -%}\n"
    "<|observation|>{{ m.content }}\n{%- elif m.role == 'system' -%}\n<|system|>\n"
    "{{ visible_text(m.content) }}\n{%- endif -%}\n{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}\n    <|assistant|>{{- '\\n<think></think>' if "
    "(enable_thinking is defined and not enable_thinking) else '' -}}\n{%- endif -%}\n")
VISIBLE = "    {%- set visible = content.split('</think>')[-1].strip() %}\n"
TOOLS = ("{%- if tools %}{{- tools | tojson }}{%- else %}{%- if messages[0].role == 'system' %}"
         "{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}{%- endif %}"
         "{%- endif %}")
QWEN3_FIRST = (
    TOOLS + "{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}"
    "{%- for message in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}"
    "{%- if ns.multi_step_tool and message.role == 'user' and not("
    "message.content.startswith('<tool_response>') and message.content.endswith("
    "'</tool_response>')) %}{%- set ns.multi_step_tool = false %}"
    "{%- set ns.last_query_index = index %}{%- endif %}{%- endfor %}"
    "{%- for message in messages %}{%- if (message.role == 'user') or (message.role == 'system' "
    "and not loop.first) %}{{- '<|im_start|>' + message.role + '\n' + message.content + "
    "'<|im_end|>' + '\n' }}{%- elif message.role == 'assistant' %}"
    "{%- set content = message.content %}{%- set reasoning_content = '' %}"
    "{%- if message.reasoning_content is defined and message.reasoning_content is not none %}"
    "{%- set reasoning_content = message.reasoning_content %}{%- else %}"
    "{%- if '</think>' in message.content %}"
    "{%- set content = message.content.split('</think>')[-1].lstrip('\n') %}"
    "{%- set reasoning_content = message.content.split('</think>')[0].rstrip('\n').split("
    "'<think>')[-1].lstrip('\n') %}{%- endif %}{%- endif %}"
    "{%- if loop.index0 > ns.last_query_index %}{%- if loop.last or (not loop.last and "
    "reasoning_content) %}{{- '<|im_start|>' + message.role + '\n<think>\n' + "
    "reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}{%- else %}"
    "{{- '<|im_start|>' + message.role + '\n' + content }}{%- endif %}{%- else %}"
    "{{- '<|im_start|>' + message.role + '\n' + content }}{%- endif %}"
    "{%- if message.tool_calls %}{%- for tool_call in message.tool_calls %}{{- tool_call }}"
    "{%- endfor %}{%- endif %}{{- '<|im_end|>\n' }}{%- elif message.role == 'tool' %}"
    "{{- message.content }}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}"
    "{{- '<|im_start|>assistant\n' }}{%- if enable_thinking is defined and enable_thinking is "
    "false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}{%- endif %}")
INST_SYSTEM = ("{%- if messages[0]['role'] == 'system' %}\n"
               "    {%- set system_message = messages[0]['content'] %}\n"
               "    {%- set loop_messages = messages[1:] %}\n{%- else %}\n"
               "    {%- set loop_messages = messages %}\n{%- endif %}\n")
INST_TURNS = "{{- bos_token }}\n{%- for message in loop_messages %}\n"
INST_ALTERNATE = ("{{- raise_exception('After the optional system message, conversation roles must "
                  "alternate user/assistant/user/assistant/...') }}\n    {%- endif %}\n")
INST_USER = ("        {%- if WITH and system_message is defined %}\n"
             "            {{- 'BEGIN' + system_message + '\\n\\n' + message['content'] + 'END' }}\n"
             "        {%- else %}\n            {{- 'BEGIN' + message['content'] + 'END' }}\n"
             "        {%- endif %}\n")
INST_ANSWER = "    {%- elif message['role'] == 'assistant' %}\n        {{- ANSWER + eos_token}}\n"
INST_END = ("    {%- else %}\n        {{- raise_exception('Only user and assistant roles are "
            "supported, with the exception of an initial optional system message!') }}\n"
            "    {%- endif %}\n{%- endfor %}\n")
OUT_OF_TURN = "    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\n        "
CALLS = "message.tool_calls is defined and message.tool_calls is not none"
MISTRAL_V3_CHECK = (
    "{#- This block checks who speaks. #}\n{%- set ns = namespace() %}\n{%- set ns.index = 0 %}\n"
    "{%- for message in loop_messages %}\n    {%- if not (message.role == 'tool' or "
    "message.role == 'tool_results' or (" + CALLS + ")) %}\n"
    "        {%- if (message['role'] == 'user') != (ns.index % 2 == 0) %}\n" + INST_ALTERNATE +
    "        {%- set ns.index = ns.index + 1 %}\n    {%- endif %}\n{%- endfor %}\n\n")
MISTRAL_V3_OLD_CHECK = (
    "{%- for message in loop_messages | rejectattr('role', 'equalto', 'tool') | "
    "rejectattr('role', 'equalto', 'tool_results') | selectattr('tool_calls', 'undefined') %}\n" +
    OUT_OF_TURN + INST_ALTERNATE + "{%- endfor %}\n\n")
MISTRAL_V3 = (
    INST_SYSTEM + "{%- if not tools is defined %}\n    {%- set tools = none %}\n{%- endif %}\n"
    "{%- set user_messages = loop_messages | selectattr('role', 'equalto', 'user') | list %}\n\n"
    "CHECK" + INST_TURNS + "    {%- if message['role'] == 'user' %}\n"
    "        {%- if tools is not none and (message == user_messages[-1]) %}\n"
    "            {{- tools | tojson }}\n            {%- endif %}\n" +
    INST_USER.replace("WITH", "loop.last").replace("END", "[/INST]") +
    "    {%- elif CALLS %}\n        {{- message.tool_calls | tojson }}\n" + INST_ANSWER +
    "    {%- elif message['role'] == 'tool_results' or message['role'] == 'tool' %}\n"
    "        {{- message.content }}\n" + INST_END)
TEKKEN = MISTRAL_V3.replace("BEGIN", "[INST]").replace("ANSWER", "message['content']")
OWN_TEMPLATES = {
    "mistral-v1": INST_SYSTEM + "\n" + INST_TURNS +
                  OUT_OF_TURN + INST_ALTERNATE + "    {%- if message['role'] == 'user' %}\n" +
                  INST_USER.replace("WITH", "loop.first").replace("BEGIN", " [INST] ").replace(
                      "END", " [/INST]") +
                  INST_ANSWER.replace("ANSWER", "' ' + message['content']") + INST_END,
    "mistral-v3": MISTRAL_V3.replace("CHECK", MISTRAL_V3_CHECK).replace(
        "BEGIN", "[INST] ").replace("CALLS", CALLS).replace(
            "ANSWER", "' ' + message['content']|trim"),
    "mistral-v3-tekken": TEKKEN.replace("CHECK", MISTRAL_V3_CHECK).replace(
        "CALLS", "(%s)" % CALLS),
    "mistral-v3-tekken, first": TEKKEN.replace("CHECK", MISTRAL_V3_OLD_CHECK).replace(
        "CALLS", "message['role'] == 'tool_calls' or message.tool_calls is defined"),
    "mistral-v7": "{{ bos_token }}" + EACH + "{% if message['role'] == 'user' %}"
                  "{{ '[INST] ' + message['content'] + '[/INST]' }}"
                  "{% elif message['role'] == 'system' %}"
                  "{{ '[SYSTEM_PROMPT] ' + message['content'] + '[/SYSTEM_PROMPT]' }}"
                  "{% elif message['role'] == 'assistant' %}"
                  "{{ ' ' + message['content'] + eos_token }}{% else %}"
                  "{{ raise_exception('Only user, system and assistant roles are supported!') }}"
                  "{% endif %}{% endfor %}",
    "qwen3, first": QWEN3_FIRST,
    "qwen3, other default": "{%- set enable_thinking = false %}" + QWEN3_FIRST,
    "qwen3, more in a turn": QWEN3_FIRST.replace(
        "content + '<|im_end|>'", "content + ' /no_think<|im_end|>'"),
    "chatml": EACH + TURN + "{% endfor %}" + ANSWER,
    "chatml, escaped": (EACH + TURN + "{% endfor %}" + ANSWER).replace("\n", "\\n"),
    "qwen2": EACH + "{% if loop.first and messages[0]['role'] != 'system' %}"
             "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}" +
             TURN + "{% endfor %}" + ANSWER,
    "phi4": EACH + "".join(
        "{%% %s (message['role'] == '%s') %%}{{'<|im_start|>%s<|im_sep|>' + message['content'] + "
        "'<|im_end|>'}}" % (word, role, role) for word, role in (
            ("if", "system"), ("elif", "user"), ("elif", "assistant"))) +
            "{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}",
    "phi4-mini": EACH + "{% if message['role'] == 'system' and 'tools' in message and "
                 "message['tools'] is not none %}{{ message['tools'] }}{% else %}"
                 "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
                 "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}"
                 "{% else %}{{ eos_token }}{% endif %}",
    "glm4": GLM.replace("VISIBLE", "").replace("TEXT", "content").replace("PROMPT", ""),
    "glmz1": GLM.replace("VISIBLE", VISIBLE).replace("TEXT", "visible").replace(
        "PROMPT", "\n<think>"),
    "glm4.5": GLM4_5,
    "glm4.5, other marks": GLM4_5.replace("'\\n<think></think>' if", "'<think></think>' if"),
}
EXPECTED = {
    "qwen3, first": "qwen3", "qwen3, other default": "unknown", "qwen3, more in a turn": "unknown",
    "chatml": "chatml", "chatml, escaped": "chatml", "qwen2": "qwen2", "glm4": "glm4",
    "glmz1": "glmz1", "qwen3.jinja": "qwen3", "qwen3_instruct_2507.jinja": "chatml",
    "qwen2_5.jinja": "qwen2.5", "llama3.jinja": "llama3", "llama3_1.jinja": "llama3.1",
    "deepseek_r1_distill.jinja": "deepseek-r1", "deepseek_r1_distill_training.jinja": "unknown",
    "llama3_2.jinja": "llama3.2", "gptoss.jinja": "gpt-oss", "gptoss_training.jinja": "unknown",
    "phi3.jinja": "phi3", "phi3_5.jinja": "phi3.5", "phi4": "phi4",
    "gemma.jinja": "gemma2", "gemma3.jinja": "gemma3", "gemma_training.jinja": "unknown",
    "gemma3_training.jinja": "unknown", "gemma4.jinja": "unknown", "mistral-v1": "mistral-v1",
    "mistral-v3": "mistral-v3", "mistral-v3-tekken": "mistral-v3-tekken",
    "mistral-v3-tekken, first": "mistral-v3-tekken", "mistral-v7": "mistral-v7",
    "phi4-mini": "phi4-mini", "glm4.5": "glm4.5", "glm4.5, other marks": "unknown"}
# Formats that refuse most conversations in which the roles do not take turns.
TAKE_TURNS = ("gemma2", "gemma3", "mistral-v1", "mistral-v3", "mistral-v3-tekken")
# The tokens that the templates call bos_token and eos_token.
ENDS = {"llama3": ("<|begin_of_text|>", None), "llama3.1": ("<|begin_of_text|>", None),
        "llama3.2": ("<|begin_of_text|>", None), "phi3": (None, "<|endoftext|>"),
        "phi3.5": (None, "<|endoftext|>"), "phi4-mini": (None, "<|endoftext|>"),
        "gemma2": ("<bos>", None), "gemma3": ("<bos>", None),
        "deepseek-r1": ("<｜begin▁of▁sentence｜>", None)}
MISTRAL = ("mistral-v1", "mistral-v3", "mistral-v3-tekken", "mistral-v7")
ENDS.update((name, ("<s>", "</s>")) for name in MISTRAL)
NO_THINK, NO_PROMPT = 1, 2
ALWAYS_THINK = ("glmz1", "gpt-oss", "deepseek-r1")
EFFORTS = (None, "low", "medium", "high")
MARKS = {
    "vicuna": ["</s>"], "llama3": [
        "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    "glm4": ["[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"]}
MARKS["llama3.1"] = MARKS["llama3.2"] = MARKS["llama3"]
MARKS["gpt-oss"] = [
    "<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|return|>", "<|call|>"]
MARKS["deepseek-r1"] = [
    "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"]
MARKS["glmz1"] = MARKS["glm4.5"] = MARKS["glm4"]
MARKS["phi3"] = MARKS["phi3.5"] = MARKS["phi4-mini"] = [
    "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"]
MARKS["phi4"] = ["<|im_start|>", "<|im_sep|>", "<|im_end|>"]
MARKS["gemma2"] = MARKS["gemma3"] = ["<bos>", "<start_of_turn>", "<end_of_turn>"]
MARKS.update((name, ["<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"])
             for name in MISTRAL)
IM = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PLAIN = ["<think>", "</think>"]  # added, and no special tokens
PIECES = [
    "<think>", "</think>", "<think>\n", "\n</think>\n\n", "<tool_response>", "</tool_response>",
    "\n", "\n\n", " ", "  ", "\t", "\u00a0", "\u3000", "\x1f", "\x00", "a", "Hi!", "user\n",
    "\nuser", "assistant", "12", "12345", "é", "e\u0301", "😀", "你好", "'s", "'", "▁", "<|", "|>",
    "<|im_", "end|>"]
SPECIAL = ["<|im_end|>", "<|im_start|>", "<|endoftext|>", "</s>", "<s>", "[gMASK]", "<|user|>",
           "<|start|>", "<|message|>", "<|channel|>final<|message|>", "<|end|>", "<|return|>",
           "<|eot_id|>", "<|begin_of_text|>", "<|im_end", "|im_end|>", "<|im_start|>system\n",
           "<end_of_turn>", "<start_of_turn>", "<bos>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]",
           "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"]


def refuse(message):
    raise jinja2.exceptions.TemplateError(message)


def environment(day):
    """As transformers makes it for chat templates, on this day."""
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = day.strftime
    env.filters["tojson"] = lambda x, **more: json.dumps(x, ensure_ascii=False)
    return env


def any_content(rng, special):
    kind = rng.random()
    if kind < 0.1:
        return ""
    if kind < 0.3:
        return any_text(rng)
    pool = PIECES + (SPECIAL * 2 if special else [])
    text = "".join(rng.choice(pool) for _ in range(rng.randint(1, 6)))
    if kind < 0.4:
        text = "<tool_response>%s</tool_response>" % text
    if kind < 0.5:
        text = "<think>\n%s\n</think>\n\n%s" % (text, rng.choice(pool))
    return text


def any_conversation(rng, late_system=True, special=True):
    talk = [("system", any_content(rng, special))] if rng.random() < 0.3 else []
    for _ in range(rng.randint(1, 6)):
        roles = ("user", "user", "assistant", "assistant", "system")
        talk.append((rng.choice(roles if late_system else roles[:4]), any_content(rng, special)))
    return talk


def conversation_of(rng, name, special=True):
    """One that a format may take, and for most formats any."""
    talk = any_conversation(rng, late_system=name not in ("vicuna", "gpt-oss"), special=special)
    if name in TAKE_TURNS and rng.random() < 0.8:
        first = talk[0][0] == "system" and rng.random() < 0.8
        talk = talk[:first] + [(("user", "assistant")[i % 2], content)
                               for i, (_, content) in enumerate(talk[first:])]
    return talk


def flat(name, flags, talk, date=20240726, effort=0):
    """As the program takes a conversation."""
    return [name, flags, date, effort] + [part for turn in talk for part in turn]


class Check:
    def __init__(self, options):
        self.ours = Library(options.program)
        self.options = options
        self.failed = 0

    def random(self, name):
        return random.Random("%s %s" % (self.options.seed, name))

    def line(self, what, value):
        """The program's answer as it is."""
        self.ours.child.stdin.write(json.dumps({what: value}).encode() + b"\n")
        self.ours.child.stdin.flush()
        return self.ours.child.stdout.readline().decode().rstrip("\n")

    def text(self, name, flags, talk, *told):
        line = self.line("chat", flat(name, flags, talk, *told))
        return line if line.startswith("error") else bytes.fromhex(line).decode()

    def differ(self, what, talk, expected, got):
        self.failed += 1
        if self.failed <= 10:
            print("     %s: %r:" % (what, talk))
            print("       expected %r\n       got      %r" % (expected, got))

    def template(self, name, jinja):
        """Whether the template is known; its texts are compared then."""
        found = self.line("jinja", jinja)
        if EXPECTED.get(name, found) != found:
            self.differ(name, "template", EXPECTED[name], found)
        if found == "unknown":
            return 0
        rng, before = self.random(name), self.failed
        day = datetime.date.fromordinal(rng.randint(700000, 800000))
        compiled = environment(day).from_string(jinja)
        refused, (bos, eos) = 0, ENDS.get(found, (None, None))
        for _ in range(self.options.conversations):
            talk = conversation_of(rng, found)
            flags = rng.choice((0, NO_PROMPT, NO_THINK, 3))
            if found in ALWAYS_THINK:
                flags &= NO_PROMPT
            told = {} if not flags & NO_THINK else {"enable_thinking": False}
            date, effort = int(day.strftime("%Y%m%d")), rng.randrange(4)
            if found == "llama3.1":  # it has no clock
                date = rng.choice((0, date))
                if date:
                    told["date_string"] = day.strftime("%d %b %Y")
            if effort:
                told["reasoning_effort"] = EFFORTS[effort]
            got = self.text(found, flags, talk, date, effort)
            try:
                expected = compiled.render(
                    messages=[{"role": role, "content": content} for role, content in talk],
                    add_generation_prompt=not flags & NO_PROMPT, bos_token=bos, eos_token=eos,
                    **told)
            except jinja2.exceptions.TemplateError as error:
                refused += 1
                expected = got if got.startswith("error -1 messages[") else "error: %s" % error
            if expected != got:
                self.differ(name, talk, expected, got)
        print("ok   %s is %s: %d conversations, %d refused, %d differ" % (
            name, found, self.options.conversations, refused, self.failed - before), flush=True)
        return 1

    def vicuna(self):
        try:
            from fastchat.conversation import get_conv_template
        except ImportError:
            return print("SKIP compare_chat_vicuna: no package fschat (make setup-tokenizers)")
        rng, before = self.random("vicuna"), self.failed
        for _ in range(self.options.conversations):
            talk = any_conversation(rng, late_system=False)
            first = talk[0][0] == "system"
            talk = talk[:first] + [(("user", "assistant")[i % 2], content)
                                   for i, (_, content) in enumerate(talk[first:])]
            if len(talk) % 2 == first:  # the assistant's turn is FastChat's to add
                talk.append(("user", "Yes?"))
            conversation = get_conv_template("vicuna_v1.1")
            for role, content in talk:
                if role == "system":
                    conversation.set_system_message(content)
                else:
                    conversation.append_message(conversation.roles[role == "assistant"], content)
            conversation.append_message(conversation.roles[1], None)
            got = self.text("vicuna", 0, talk)
            if conversation.get_prompt() != got:
                self.differ("vicuna", talk, conversation.get_prompt(), got)
        print("ok   vicuna: %d conversations, %d differ" %
              (self.options.conversations, self.failed - before), flush=True)

    def ids(self, name, folder):
        """Ids of one format with a tokenizer that has its marks."""
        reference = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        reference.add_special_tokens(
            [AddedToken(mark, normalized=False) for mark in MARKS.get(name, IM)])
        reference.add_tokens([AddedToken(word, normalized=False) for word in PLAIN])
        made = tempfile.mkdtemp()
        path = os.path.join(made, "tokenizer.json")
        reference.save(path)
        loaded = self.ours.ask("load", made)
        os.remove(path)
        os.rmdir(made)
        if loaded != "ok":
            return print("     %s: %s" % (folder, loaded))
        special = {
            i: t.content for i, t in reference.get_added_tokens_decoder().items() if t.special}
        rng, before = self.random(folder + name), self.failed
        for _ in range(self.options.conversations):
            talk = conversation_of(rng, name, special=rng.random() < 0.5)
            text = self.text(name, 0, talk)
            if name in TAKE_TURNS and text.startswith("error -1 messages["):
                continue
            got = self.ours.ask("ids", flat(name, 0, talk))
            if not any(word in content for word in special.values() for _, content in talk):
                expected = reference.encode(text, add_special_tokens=name == "vicuna").ids
            else:
                clean = [(role, "x" if content else "") for role, content in talk]
                expected = [
                    i for i in self.ours.ask("ids", flat(name, 0, clean)) if i in special]
                if name == "qwen3":  # a content's reasoning is a part of the format
                    expected = None
                ours = [i for i in got if i in special]
                if expected in (None, ours) and self.decoded(reference, got, text, name):
                    continue
                got = ours
            if expected != got:
                self.differ("ids of %s, %s" % (name, folder), talk, expected, got)
        print("ok   ids of %s with %s: %d conversations, %d differ" %
              (name, folder, self.options.conversations, self.failed - before), flush=True)

    def decoded(self, reference, ids, text, name):
        """Byte-level ids decode to the text, but for its normal form."""
        if name == "vicuna":
            return True
        import unicodedata
        form = lambda s: unicodedata.normalize("NFC", s)
        return form(reference.decode(ids, skip_special_tokens=False)) == form(text)


def jinja_files(roots):
    for root in roots:
        for path, _, files in sorted(os.walk(root)):
            for name in sorted(files):
                if name.endswith(".jinja"):
                    yield name, open(os.path.join(path, name), encoding="utf-8").read()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--conversations", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    check = Check(options := parser.parse_intermixed_args())
    templates = list(OWN_TEMPLATES.items()) + list(jinja_files(options.folders))
    trl = [os.path.join(path, "trl/chat_templates") for path in sys.path]
    trl = [path for path in trl if os.path.isdir(path)]
    if not trl:
        print("SKIP compare_chat_with_trl: no package trl (make setup-tokenizers)")
    templates += jinja_files(trl)
    known = sum(check.template(name, jinja) for name, jinja in templates)
    print("ok   %d templates, %d of them known" % (len(templates), known))
    check.vicuna()
    for root in options.folders + ["build"]:
        for folder, names in (
                ("qwen", ("qwen3", "chatml", "qwen2", "qwen2.5", "phi4", "gemma3",
                          "mistral-v3-tekken", "phi4-mini", "deepseek-r1")),
                ("glm", ("glm4", "glmz1", "glm4.5", "llama3")),
                ("phi3", ("vicuna", "phi3", "phi3.5", "gemma2", "mistral-v1", "mistral-v3",
                          "mistral-v7")),
                ("tokenizer_qwen", ("qwen3", "chatml")),
                ("tokenizer_llama3", ("llama3", "glm4", "glmz1"))):
            if os.path.exists(os.path.join(root, folder, "tokenizer.json")):
                for name in names:
                    check.ids(name, os.path.join(root, folder))
    print("%s compare_chat: %d differences" % ("FAIL" if check.failed else "ok  ", check.failed))
    sys.exit(check.failed > 0)


if __name__ == "__main__":
    main()
