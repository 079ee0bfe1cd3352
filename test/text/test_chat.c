/*
 * Conversations as text. The expected strings are written out by hand from the models' published
 * templates: FastChat's vicuna_v1.1, the Jinja templates of Qwen2, Qwen2.5, Qwen3, Llama 3 to 3.3,
 * gpt-oss, Phi-3, Phi-3.5, Phi-4, Phi-4-mini, Gemma 2, Gemma 3, Mistral (V1, V3, V7), GLM-4.6 and
 * GLM-Z1-0414 (chat_template.jinja of https://huggingface.co/zai-org/GLM-Z1-9B-0414). Those of
 * GLM-4-0414, whose template was not found, are GLM-Z1-0414's without thinking.
 */
#include "sbtest.h"
#include "specbatch.h"
#include "text/chat.h"

static const struct sb_mem test_mem;

#define VICUNA                                                                                     \
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives " \
    "helpful, detailed, and polite answers to the user's questions. "
#define COUNT(array) (sizeof(array) / sizeof *(array))

#define ONE(role, content)                 \
    {                                      \
        role, content, sizeof(content) - 1 \
    }

static int32_t write_chat(int32_t format, uint32_t flags, const specbatch_message *messages,
                          size_t n, struct sb_chat_text *out)
{
    const struct sb_chat_call call = {messages, sizeof *messages, n, format, flags, 0, 0};
    return sb_chat_write(&call, out);
}

static void check_flags(int32_t format, uint32_t flags, const specbatch_message *messages, size_t n,
                        const char *expected)
{
    struct sb_chat_text out = {.text = {.mem = &test_mem}};

    CHECK_OK(write_chat(format, flags, messages, n, &out));
    CHECK_STR(out.text.data, expected);
    CHECK_INT(out.text.n, strlen(expected));
    sb_chat_text_clear(&out);
}

static void check(int32_t format, const specbatch_message *messages, size_t n, const char *expected)
{
    check_flags(format, 0, messages, n, expected);
}

static const specbatch_message question[] = {ONE("user", "Hi!")};
static const specbatch_message instructed[] = {ONE("system", "Be brief."), ONE("user", "Hi!")};
static const specbatch_message talk[] = {ONE("user", "One?"), ONE("assistant", "1."),
                                         ONE("user", "Two?")};
static const specbatch_message answered[] = {ONE("user", "One?"), ONE("assistant", "1.")};

static void test_raw(void)
{
    check(SPECBATCH_CHAT_RAW, question, 1, "Hi!");
    check(SPECBATCH_CHAT_RAW, talk, 3, "One?1.Two?");
}

static void test_vicuna(void)
{
    check(SPECBATCH_CHAT_VICUNA, question, 1, VICUNA "USER: Hi! ASSISTANT:");
    check(SPECBATCH_CHAT_VICUNA, instructed, 2, "Be brief. USER: Hi! ASSISTANT:");
    check(SPECBATCH_CHAT_VICUNA, talk, 3,
          VICUNA "USER: One? ASSISTANT: 1.</s>USER: Two? ASSISTANT:");
}

/* A message without text is its role and a colon, as in FastChat. */
static void test_vicuna_without_text(void)
{
    static const specbatch_message nothing[] = {ONE("user", "")};
    static const specbatch_message silence[] = {ONE("user", "One?"), ONE("assistant", ""),
                                                ONE("user", "")};

    check(SPECBATCH_CHAT_VICUNA, nothing, 1, VICUNA "USER:ASSISTANT:");
    check(SPECBATCH_CHAT_VICUNA, silence, 3, VICUNA "USER: One? ASSISTANT:USER:ASSISTANT:");
}

static void check_refused(int32_t format, const specbatch_message *messages, size_t n,
                          const char *why)
{
    struct sb_chat_text out = {.text = {.mem = &test_mem}};

    CHECK_ERROR(write_chat(format, 0, messages, n, &out), SPECBATCH_E_INVALID, why);
    sb_chat_text_clear(&out);
}

static void test_vicuna_refuses_a_late_system_message(void)
{
    static const specbatch_message late[] = {ONE("user", "Hi!"), ONE("system", "Be brief.")};

    check_refused(SPECBATCH_CHAT_VICUNA, late, 2, "messages[1]");
}

static void test_qwen3(void)
{
    check(SPECBATCH_CHAT_QWEN3, question, 1,
          "<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\n");
    check(SPECBATCH_CHAT_QWEN3, instructed, 2,
          "<|im_start|>system\nBe brief.<|im_end|>\n"
          "<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\n");
    check(SPECBATCH_CHAT_QWEN3, talk, 3,
          "<|im_start|>user\nOne?<|im_end|>\n<|im_start|>assistant\n1.<|im_end|>\n"
          "<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n");
}

static void test_qwen3_drops_earlier_reasoning(void)
{
    static const specbatch_message thoughtful[] = {
        ONE("user", "One?"),
        ONE("assistant", "<think>\nhm </think> hm\n</think>\n\n1.\n"),
        ONE("user", "Two?"),
    };

    check(SPECBATCH_CHAT_QWEN3, thoughtful, 3,
          "<|im_start|>user\nOne?<|im_end|>\n<|im_start|>assistant\n1.\n<|im_end|>\n"
          "<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n");
}

/* An answer behind the last question keeps its reasoning. If that is the last message and has none,
 * it gets an empty one. */
static void test_qwen3_answer_behind_the_question(void)
{
    static const specbatch_message thoughtful[] = {
        ONE("user", "One?"), ONE("assistant", "<think>\n\nhm\n\n</think>\n\n\n1.")};
    static const specbatch_message calls[] = {
        ONE("user", "One?"),
        ONE("assistant", "<think>look</think>call"),
        ONE("user", "<tool_response>\n1\n</tool_response>"),
        ONE("assistant", "call"),
        ONE("user", "<tool_response>\n2\n</tool_response>"),
    };

    check(SPECBATCH_CHAT_QWEN3, answered, 2,
          "<|im_start|>user\nOne?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</"
          "think>\n\n1.<|im_end|>\n"
          "<|im_start|>assistant\n");
    check(SPECBATCH_CHAT_QWEN3, thoughtful, 2,
          "<|im_start|>user\nOne?<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</"
          "think>\n\n1.<|im_end|>\n"
          "<|im_start|>assistant\n");
    check(SPECBATCH_CHAT_QWEN3, calls, COUNT(calls),
          "<|im_start|>user\nOne?<|im_end|>\n"
          "<|im_start|>assistant\n<think>\nlook\n</think>\n\ncall<|im_end|>\n"
          "<|im_start|>user\n<tool_response>\n1\n</tool_response><|im_end|>\n"
          "<|im_start|>assistant\ncall<|im_end|>\n"
          "<|im_start|>user\n<tool_response>\n2\n</"
          "tool_response><|im_end|>\n<|im_start|>assistant\n");
}

static void test_qwen3_no_think(void)
{
    check_flags(SPECBATCH_CHAT_QWEN3, SPECBATCH_CHAT_NO_THINK, question, 1,
                "<|im_start|>user\nHi!<|im_end|>\n"
                "<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

static void test_chatml(void)
{
    check(SPECBATCH_CHAT_CHATML, talk, 3,
          "<|im_start|>user\nOne?<|im_end|>\n<|im_start|>assistant\n1.<|im_end|>\n"
          "<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n");
    check(SPECBATCH_CHAT_CHATML, instructed, 2,
          "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi!<|im_end|>\n"
          "<|im_start|>assistant\n");
}

/* Without a system message these have one of their own. */
static void test_qwen2(void)
{
    check(SPECBATCH_CHAT_QWEN2, question, 1,
          "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
          "<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\n");
    check(SPECBATCH_CHAT_QWEN2_5, question, 1,
          "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
          "assistant.<|im_end|>\n<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\n");
    check(SPECBATCH_CHAT_QWEN2_5, instructed, 2,
          "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi!<|im_end|>\n"
          "<|im_start|>assistant\n");
}

/* A system message without text stays in Phi-3's format, and in Phi-3.5's it does not. Instead of
 * the answer's mark there is the end of the sequence. */
static void test_phi3(void)
{
    static const specbatch_message silent[] = {ONE("system", ""), ONE("user", "Hi!")};

    check(SPECBATCH_CHAT_PHI3, instructed, 2,
          "<|system|>\nBe brief.<|end|>\n<|user|>\nHi!<|end|>\n<|assistant|>\n");
    check(SPECBATCH_CHAT_PHI3_5, instructed, 2,
          "<|system|>\nBe brief.<|end|>\n<|user|>\nHi!<|end|>\n<|assistant|>\n");
    check(SPECBATCH_CHAT_PHI3, silent, 2,
          "<|system|>\n<|end|>\n<|user|>\nHi!<|end|>\n<|assistant|>\n");
    check(SPECBATCH_CHAT_PHI3_5, silent, 2, "<|user|>\nHi!<|end|>\n<|assistant|>\n");
    check_flags(SPECBATCH_CHAT_PHI3_5, SPECBATCH_CHAT_NO_ANSWER_PROMPT, talk, 2,
                "<|user|>\nOne?<|end|>\n<|assistant|>\n1.<|end|>\n<|endoftext|>");
}

static void test_phi4(void)
{
    check(SPECBATCH_CHAT_PHI4, instructed, 2,
          "<|im_start|>system<|im_sep|>Be brief.<|im_end|><|im_start|>user<|im_sep|>Hi!<|im_end|>"
          "<|im_start|>assistant<|im_sep|>");
    check_flags(SPECBATCH_CHAT_PHI4, SPECBATCH_CHAT_NO_ANSWER_PROMPT, talk, 2,
                "<|im_start|>user<|im_sep|>One?<|im_end|>"
                "<|im_start|>assistant<|im_sep|>1.<|im_end|>");
}

static void test_phi4_mini(void)
{
    static const specbatch_message silent[] = {ONE("system", ""), ONE("user", " Hi!\n")};

    check(SPECBATCH_CHAT_PHI4_MINI, silent, 2,
          "<|system|><|end|><|user|> Hi!\n<|end|><|assistant|>");
    check_flags(SPECBATCH_CHAT_PHI4_MINI, SPECBATCH_CHAT_NO_ANSWER_PROMPT, talk, 2,
                "<|user|>One?<|end|><|assistant|>1.<|end|><|endoftext|>");
}

/* Contents lose the blanks at their ends, and Gemma 3's system message does not. */
static void test_gemma(void)
{
    static const int32_t formats[] = {SPECBATCH_CHAT_GEMMA2, SPECBATCH_CHAT_GEMMA3};
    static const specbatch_message blank[] = {ONE("user", "\x1C\n Hi there\xC2\x85"),
                                              ONE("assistant", " \xE2\x80\xA8"), ONE("user", "")};
    static const specbatch_message spaced[] = {ONE("system", " A.\n"), ONE("user", "\tHi!")};

    for (size_t i = 0; i < COUNT(formats); i++) {
        check(formats[i], talk, 3,
              "<bos><start_of_turn>user\nOne?<end_of_turn>\n"
              "<start_of_turn>model\n1.<end_of_turn>\n"
              "<start_of_turn>user\nTwo?<end_of_turn>\n<start_of_turn>model\n");
        check_flags(formats[i], SPECBATCH_CHAT_NO_ANSWER_PROMPT, blank, 3,
                    "<bos><start_of_turn>user\nHi there<end_of_turn>\n"
                    "<start_of_turn>model\n<end_of_turn>\n<start_of_turn>user\n<end_of_turn>\n");
    }
    check(SPECBATCH_CHAT_GEMMA3, spaced, 2,
          "<bos><start_of_turn>user\n A.\n\n\nHi!<end_of_turn>\n<start_of_turn>model\n");
    check(SPECBATCH_CHAT_GEMMA3, spaced, 1, "<bos><start_of_turn>model\n");
}

/* What the templates refuse: Gemma 2's a system message at the beginning, and both a turn that is
 * not the user's where it should be. They do not ask whose the other turns are. */
static void test_gemma_refuses(void)
{
    static const specbatch_message twice[] = {ONE("user", "a"), ONE("user", "b")};
    static const specbatch_message told_twice[] = {ONE("system", "a"), ONE("system", "b")};
    static const specbatch_message late[] = {ONE("user", "a"), ONE("system", "b")};

    check_refused(SPECBATCH_CHAT_GEMMA2, instructed, 2, "messages[0]: this format has no system");
    check_refused(SPECBATCH_CHAT_GEMMA2, &talk[1], 2, "messages[0]: in this format the user has");
    check_refused(SPECBATCH_CHAT_GEMMA2, twice, 2, "messages[1]: in this format the user has");
    check_refused(SPECBATCH_CHAT_GEMMA3, twice, 2, "messages[1]: in this format the user has");
    check_refused(SPECBATCH_CHAT_GEMMA3, told_twice, 2, "messages[1]: in this format the user");
    check_flags(SPECBATCH_CHAT_GEMMA3, SPECBATCH_CHAT_NO_ANSWER_PROMPT, late, 2,
                "<bos><start_of_turn>user\na<end_of_turn>\n"
                "<start_of_turn>system\nb<end_of_turn>\n");
}

static const specbatch_message told[] = {ONE("system", "A."), ONE("user", "One? "),
                                         ONE("assistant", " 1.\n"), ONE("user", "Two?")};

/* The versions differ in blanks, and in the question that has the system message. */
static void test_mistral(void)
{
    check(SPECBATCH_CHAT_MISTRAL_V1, told, 4,
          "<s> [INST] A.\n\nOne?  [/INST]  1.\n</s> [INST] Two? [/INST]");
    check(SPECBATCH_CHAT_MISTRAL_V3, told, 4,
          "<s>[INST] One? [/INST] 1.</s>[INST] A.\n\nTwo?[/INST]");
    check(SPECBATCH_CHAT_MISTRAL_V3_TEKKEN, told, 4,
          "<s>[INST]One? [/INST] 1.\n</s>[INST]A.\n\nTwo?[/INST]");
    check(SPECBATCH_CHAT_MISTRAL_V7, told, 4,
          "<s>[SYSTEM_PROMPT] A.[/SYSTEM_PROMPT][INST] One? [/INST]  1.\n</s>[INST] Two?[/INST]");
    check(SPECBATCH_CHAT_MISTRAL_V1, talk, 3, "<s> [INST] One? [/INST] 1.</s> [INST] Two? [/INST]");
    check(SPECBATCH_CHAT_MISTRAL_V3, talk, 3, "<s>[INST] One?[/INST] 1.</s>[INST] Two?[/INST]");
}

/* Without a question to put it into, the system message is nowhere. V7 has a turn of its own for
 * it, and anywhere. */
static void test_mistral_without_a_question(void)
{
    static const specbatch_message late[] = {ONE("user", "a"), ONE("user", "b"), ONE("system", "")};

    check(SPECBATCH_CHAT_MISTRAL_V1, told, 1, "<s>");
    check(SPECBATCH_CHAT_MISTRAL_V1, told, 3, "<s> [INST] A.\n\nOne?  [/INST]  1.\n</s>");
    check(SPECBATCH_CHAT_MISTRAL_V3, told, 1, "<s>");
    check(SPECBATCH_CHAT_MISTRAL_V3, told, 3, "<s>[INST] One? [/INST] 1.</s>");
    check(SPECBATCH_CHAT_MISTRAL_V7, late, 3,
          "<s>[INST] a[/INST][INST] b[/INST][SYSTEM_PROMPT] [/SYSTEM_PROMPT]");
}

static void test_mistral_refuses(void)
{
    static const int32_t formats[] = {SPECBATCH_CHAT_MISTRAL_V1, SPECBATCH_CHAT_MISTRAL_V3,
                                      SPECBATCH_CHAT_MISTRAL_V3_TEKKEN};
    static const specbatch_message twice[] = {ONE("user", "a"), ONE("user", "b")};
    static const specbatch_message late[] = {ONE("system", "a"), ONE("user", "b"),
                                             ONE("system", "c")};

    for (size_t i = 0; i < COUNT(formats); i++) {
        check_refused(formats[i], twice, 2, "messages[1]: in this format user and assistant");
        check_refused(formats[i], &talk[1], 1, "messages[0]: in this format user and assistant");
        check_refused(formats[i], late, 3, "messages[2]: in this format user and assistant");
    }
}

/* Contents lose the blanks at their ends. */
static void test_llama3(void)
{
    static const specbatch_message blank[] = {ONE("system", " \n"),
                                              ONE("user", "\n Hi there\xC2\xA0")};

    check(SPECBATCH_CHAT_LLAMA3, talk, 3,
          "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nOne?<|eot_id|>"
          "<|start_header_id|>assistant<|end_header_id|>\n\n1.<|eot_id|>"
          "<|start_header_id|>user<|end_header_id|>\n\nTwo?<|eot_id|>"
          "<|start_header_id|>assistant<|end_header_id|>\n\n");
    check(SPECBATCH_CHAT_LLAMA3, blank, 2,
          "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n<|eot_id|>"
          "<|start_header_id|>user<|end_header_id|>\n\nHi there<|eot_id|>"
          "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

static void test_no_answer_prompt(void)
{
    static const uint32_t flags = SPECBATCH_CHAT_NO_ANSWER_PROMPT | SPECBATCH_CHAT_NO_THINK;

    check_flags(SPECBATCH_CHAT_RAW, flags, question, 1, "Hi!");
    check_flags(SPECBATCH_CHAT_VICUNA, flags, answered, 2, VICUNA "USER: One? ASSISTANT: 1.</s>");
    check_flags(SPECBATCH_CHAT_QWEN3, flags, question, 1, "<|im_start|>user\nHi!<|im_end|>\n");
    check_flags(SPECBATCH_CHAT_CHATML, flags, question, 1, "<|im_start|>user\nHi!<|im_end|>\n");
    check_flags(SPECBATCH_CHAT_GLM4, flags, question, 1, "[gMASK]<sop><|user|>\nHi!");
    check_flags(SPECBATCH_CHAT_GLMZ1, SPECBATCH_CHAT_NO_ANSWER_PROMPT, question, 1,
                "[gMASK]<sop><|user|>\nHi!");
    check_flags(SPECBATCH_CHAT_LLAMA3, flags, question, 1,
                "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi!<|eot_id|>");
}

static void test_glm4(void)
{
    static const specbatch_message late[] = {ONE("user", "Hi!"), ONE("system", "A."),
                                             ONE("system", "B.")};

    check(SPECBATCH_CHAT_GLM4, question, 1, "[gMASK]<sop><|user|>\nHi!<|assistant|>");
    check(SPECBATCH_CHAT_GLM4, instructed, 2,
          "[gMASK]<sop><|system|>\nBe brief.<|user|>\nHi!<|assistant|>");
    check(SPECBATCH_CHAT_GLM4, talk, 3,
          "[gMASK]<sop><|user|>\nOne?<|assistant|>\n1.<|user|>\nTwo?<|assistant|>");
    check(SPECBATCH_CHAT_GLM4, late, 3,
          "[gMASK]<sop><|system|>\nA.<|system|>\nB.<|user|>\nHi!<|assistant|>");
}

/* Earlier turns lose their reasoning and the blanks around it, as split and strip do in the
 * template. */
static void test_glmz1(void)
{
    static const specbatch_message late[] = {ONE("user", "Hi!"), ONE("system", "A."),
                                             ONE("system", " B.\n")};
    static const specbatch_message thoughtful[] = {
        ONE("user", "One?"),
        ONE("assistant", "<think>\nhm </think> hm\n</think>\n\n1.\n"),
        ONE("user", "\n T wo?\xC2\xA0\xE3\x80\x80\x1F\t"),
    };
    static const specbatch_message empty[] = {ONE("user", "  "), ONE("assistant", "</think>"),
                                              ONE("user", "a</think> b")};

    check(SPECBATCH_CHAT_GLMZ1, question, 1, "[gMASK]<sop><|user|>\nHi!<|assistant|>\n<think>");
    check(SPECBATCH_CHAT_GLMZ1, instructed, 2,
          "[gMASK]<sop><|system|>\nBe brief.<|user|>\nHi!<|assistant|>\n<think>");
    check(SPECBATCH_CHAT_GLMZ1, late, 3,
          "[gMASK]<sop><|system|>\nA.<|system|>\n B.\n<|user|>\nHi!<|assistant|>\n<think>");
    check(SPECBATCH_CHAT_GLMZ1, thoughtful, 3,
          "[gMASK]<sop><|user|>\nOne?<|assistant|>\n1.<|user|>\nT wo?<|assistant|>\n<think>");
    check(SPECBATCH_CHAT_GLMZ1, empty, 3,
          "[gMASK]<sop><|user|>\n<|assistant|>\n<|user|>\nb<|assistant|>\n<think>");
}

#define R1(name) "<\xEF\xBD\x9C" name "\xEF\xBD\x9C>"
#define R1_SENTENCE(name) R1(name "\xE2\x96\x81of\xE2\x96\x81sentence")

/* The last system message stands at the beginning, wherever it was; answers lose their reasoning
 * and nothing else. */
static void test_deepseek_r1(void)
{
    static const specbatch_message late[] = {ONE("system", "A."), ONE("user", " Hi!\n"),
                                             ONE("system", " B.")};
    static const specbatch_message thoughtful[] = {
        ONE("user", "One?"), ONE("assistant", "<think>\nhm </think> hm\n</think>\n\n1.\n"),
        ONE("assistant", ""), ONE("user", "Two?")};
    const int32_t format = SPECBATCH_CHAT_DEEPSEEK_R1;

    check(format, question, 1, R1_SENTENCE("begin") R1("User") "Hi!" R1("Assistant") "<think>\n");
    check(format, late, 3,
          R1_SENTENCE("begin") " B." R1("User") " Hi!\n" R1("Assistant") "<think>\n");
    check(format, thoughtful, 4,
          R1_SENTENCE("begin") R1("User") "One?" R1("Assistant") "\n\n1.\n" R1_SENTENCE("end")
              R1("Assistant") R1_SENTENCE("end") R1("User") "Two?" R1("Assistant") "<think>\n");
    check_flags(format, SPECBATCH_CHAT_NO_ANSWER_PROMPT, question, 1,
                R1_SENTENCE("begin") R1("User") "Hi!");
}

/* Answers keep their reasoning behind the last question only, and lose the blanks around both. */
static void test_glm4_5(void)
{
    static const specbatch_message thoughtful[] = {
        ONE("system", " A.\n"),
        ONE("user", "One?\n"),
        ONE("assistant", "<think>\nhm\n</think>\n\n1.\n"),
        ONE("user", "Two?/nothink"),
        ONE("assistant", "x<think>\n a <think> hm </think> b </think>\t 2.\xC2\xA0"),
        ONE("assistant", "\n"),
    };
    static const specbatch_message early[] = {ONE("assistant", "<think> hm</think>"),
                                              ONE("system", "B.")};
    const uint32_t flags = SPECBATCH_CHAT_NO_THINK | SPECBATCH_CHAT_NO_ANSWER_PROMPT;

    check(SPECBATCH_CHAT_GLM4_5, question, 1, "[gMASK]<sop><|user|>\nHi!<|assistant|>");
    check(
        SPECBATCH_CHAT_GLM4_5, talk, 3,
        "[gMASK]<sop><|user|>\nOne?<|assistant|>\n<think></think>\n1.<|user|>\nTwo?<|assistant|>");
    check(SPECBATCH_CHAT_GLM4_5, thoughtful, 6,
          "[gMASK]<sop><|system|>\n A.\n<|user|>\nOne?\n<|assistant|>\n<think></think>\n1."
          "<|user|>\nTwo?/nothink<|assistant|>\n<think>hm</think>\n2."
          "<|assistant|>\n<think></think><|assistant|>");
    check(SPECBATCH_CHAT_GLM4_5, early, 2,
          "[gMASK]<sop><|assistant|>\n<think>hm</think><|system|>\nB.<|assistant|>");
    check_flags(SPECBATCH_CHAT_GLM4_5, SPECBATCH_CHAT_NO_THINK, question, 1,
                "[gMASK]<sop><|user|>\nHi!/nothink<|assistant|>\n<think></think>");
    check_flags(SPECBATCH_CHAT_GLM4_5, flags, thoughtful, 4,
                "[gMASK]<sop><|system|>\n A.\n<|user|>\nOne?\n/nothink<|assistant|>\n"
                "<think></think>\n1.<|user|>\nTwo?/nothink");
}

static void check_day(int32_t format, uint32_t flags, int32_t date, int32_t effort,
                      const specbatch_message *messages, size_t n, const char *expected)
{
    const struct sb_chat_call call = {messages, sizeof *messages, n, format, flags, date, effort};
    struct sb_chat_text out = {.text = {.mem = &test_mem}};

    CHECK_OK(sb_chat_write(&call, &out));
    CHECK_STR(out.text.data, expected);
    sb_chat_text_clear(&out);
}

#define LLAMA3_1(day)                                                                         \
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: " \
    "December 2023\nToday Date: " day "\n\n"
#define LLAMA3_1_ASKED                                                    \
    "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi!<|eot_id|>" \
    "<|start_header_id|>assistant<|end_header_id|>\n\n"

static void test_llama3_1(void)
{
    static const int32_t formats[] = {SPECBATCH_CHAT_LLAMA3_1, SPECBATCH_CHAT_LLAMA3_2};
    static const specbatch_message blank[] = {ONE("system", " Be\nbrief. \n"),
                                              ONE("user", "\tHi! ")};

    for (int i = 0; i < 2; i++) {
        check(formats[i], question, 1, LLAMA3_1("26 Jul 2024") LLAMA3_1_ASKED);
        check_day(formats[i], 0, 20280229, 0, instructed, 2,
                  LLAMA3_1("29 Feb 2028") "Be brief." LLAMA3_1_ASKED);
        check_day(formats[i], 0, 99991205, 3, blank, 2,
                  LLAMA3_1("05 Dec 9999") "Be\nbrief." LLAMA3_1_ASKED);
        check_day(formats[i], SPECBATCH_CHAT_NO_ANSWER_PROMPT, 10000101, 0, answered, 2,
                  LLAMA3_1("01 Jan 1000") "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"
                                          "One?<|eot_id|><|start_header_id|>assistant<|end_header_"
                                          "id|>\n\n1.<|eot_id|>");
    }
}

#define GPT_OSS(day, effort)                                                                 \
    "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n" \
    "Knowledge cutoff: 2024-06\nCurrent date: " day "\n\nReasoning: " effort "\n\n# Valid "  \
    "channels: analysis, commentary, final. Channel must be included for every message.<|end|>"

/* Answers are of the channel that users see. The system's message is the developer's. */
static void test_gpt_oss(void)
{
    static const specbatch_message empty[] = {ONE("system", ""), ONE("user", "Hi!")};
    const int32_t format = SPECBATCH_CHAT_GPT_OSS;

    check_day(
        format, 0, 20261129, 0, question, 1,
        GPT_OSS("2026-11-29", "medium") "<|start|>user<|message|>Hi!<|end|><|start|>assistant");
    check_day(
        format, 0, 20260105, SPECBATCH_EFFORT_HIGH, instructed, 2,
        GPT_OSS("2026-01-05",
                "high") "<|start|>developer<|message|># Instructions\n\n"
                        "Be brief.\n\n<|end|><|start|>user<|message|>Hi!<|end|><|start|>assistant");
    check_day(format, 0, 20261129, SPECBATCH_EFFORT_LOW, empty, 2,
              GPT_OSS("2026-11-29", "low") "<|start|>user<|message|>Hi!<|end|><|start|>assistant");
    check_day(
        format, 0, 20261129, SPECBATCH_EFFORT_MEDIUM, talk, 3,
        GPT_OSS("2026-11-29", "medium") "<|start|>user<|message|>One?<|end|>"
                                        "<|start|>assistant<|channel|>final<|message|>1.<|end|>"
                                        "<|start|>user<|message|>Two?<|end|><|start|>assistant");
    check_day(format, SPECBATCH_CHAT_NO_ANSWER_PROMPT, 20261129, 0, answered, 2,
              GPT_OSS("2026-11-29",
                      "medium") "<|start|>user<|message|>One?<|end|>"
                                "<|start|>assistant<|channel|>final<|message|>1.<|return|>");
}

/* A content is as long as it says, and may have NULs in it. */
static void test_length(void)
{
    static const specbatch_message part[] = {{"user", "ab\0cd", 4}, {"assistant", NULL, 0}};
    struct sb_chat_text out = {.text = {.mem = &test_mem}};

    CHECK_OK(write_chat(SPECBATCH_CHAT_RAW, 0, part, 2, &out));
    CHECK_INT(out.text.n, 4);
    CHECK_MEM(out.text.data, "ab\0c", 5);
    sb_chat_text_clear(&out);
    CHECK_OK(write_chat(SPECBATCH_CHAT_RAW, 0, part + 1, 1, &out));
    CHECK_STR(out.text.data, "");
    sb_chat_text_clear(&out);
}

/* The messages of a caller whose struct is longer. */
static void test_newer_messages(void)
{
    struct {
        specbatch_message message;
        const char *more;
    } newer[] = {{ONE("user", "One?"), NULL}, {ONE("assistant", "1."), NULL}};
    const struct sb_chat_call call = {
        &newer[0].message, sizeof *newer, 2, SPECBATCH_CHAT_RAW, 0, 0, 0};
    struct sb_chat_text out = {.text = {.mem = &test_mem}};

    CHECK_OK(sb_chat_write(&call, &out));
    CHECK_STR(out.text.data, "One?1.");
    sb_chat_text_clear(&out);
    newer[1].more = "set";
    CHECK_ERROR(sb_chat_write(&call, &out), SPECBATCH_E_OPTIONS, "messages[1]: the field at byte ");
    sb_chat_text_clear(&out);
}

static void test_refused(void)
{
    static const specbatch_message tool[] = {ONE("user", "a"), ONE("tool", "b")};
    static const specbatch_message no_role = {NULL, "b", 1}, no_content = {"user", NULL, 1};
    static const specbatch_message late[] = {ONE("user", "a"), ONE("system", "b")};
    static const specbatch_message analysis[] = {
        ONE("user", "a"), ONE("assistant", "<|channel|>analysis<|message|>b")};
    static const specbatch_message final[] = {ONE("user", "a"),
                                              ONE("assistant", "b<|channel|>final<|message|>")};
    static const specbatch_message cut[] = {ONE("user", "a"), ONE("user", "b\xE2\x82")};
    static const struct {
        struct sb_chat_call call;
        int32_t code;
        const char *why;
    } cases[] = {
        {{question, sizeof *question, 1, 99, 0, 0, 0}, SPECBATCH_E_NOT_FOUND, "chat format 99"},
        {{question, sizeof *question, 1, -1, 0, 0, 0}, SPECBATCH_E_NOT_FOUND, "chat format -1"},
        {{question, sizeof *question, 1, 1, 8, 0, 0}, SPECBATCH_E_OPTIONS, "unknown bits 0x8"},
        {{question, 16, 1, 1, 0, 0, 0}, SPECBATCH_E_INVALID, "message_size is 16"},
        {{question, 28, 1, 1, 0, 0, 0}, SPECBATCH_E_INVALID, "message_size is 28"},
        {{question, 1 << 20, 1, 1, 0, 0, 0}, SPECBATCH_E_INVALID, "message_size is"},
        {{question, 24, SIZE_MAX / 2, 1, 0, 0, 0}, SPECBATCH_E_INVALID, "n_messages"},
        {{question, 24, 0, 1, 0, 0, 0}, SPECBATCH_E_INVALID, "there is none"},
        {{tool, 24, 2, 1, 0, 0, 0}, SPECBATCH_E_INVALID, "messages[1]: unknown role \"tool\""},
        {{&no_role, 24, 1, 1, 0, 0, 0}, SPECBATCH_E_INVALID, "messages[0]: role"},
        {{&no_content, 24, 1, 1, 0, 0, 0}, SPECBATCH_E_INVALID, "messages[0]: content"},
        {{cut, 24, 2, 1, 0, 0, 0}, SPECBATCH_E_INVALID, "messages[1]: byte 1: invalid UTF-8"},
        {{question, 24, 1, SPECBATCH_CHAT_GLMZ1, SPECBATCH_CHAT_NO_THINK, 0, 0},
         SPECBATCH_E_UNSUPPORTED,
         "glmz1"},
        {{question, 24, 1, SPECBATCH_CHAT_DEEPSEEK_R1, SPECBATCH_CHAT_NO_THINK, 0, 0},
         SPECBATCH_E_UNSUPPORTED,
         "chat format deepseek-r1: its thinking"},
        {{question, 24, 1, SPECBATCH_CHAT_GPT_OSS, SPECBATCH_CHAT_NO_THINK, 20261129, 0},
         SPECBATCH_E_UNSUPPORTED,
         "chat format gpt-oss: its thinking"},
        {{question, 24, 1, SPECBATCH_CHAT_GPT_OSS, 0, 0, 0},
         SPECBATCH_E_INVALID,
         "date is 0; the format gpt-oss says the day"},
        {{late, 24, 2, SPECBATCH_CHAT_GPT_OSS, 0, 20261129, 0},
         SPECBATCH_E_INVALID,
         "messages[1]: this format has a system message only at the beginning"},
        {{analysis, 24, 2, SPECBATCH_CHAT_GPT_OSS, 0, 20261129, 0},
         SPECBATCH_E_INVALID,
         "messages[1]: it has marks of channels"},
        {{final, 24, 2, SPECBATCH_CHAT_GPT_OSS, 0, 20261129, 0},
         SPECBATCH_E_INVALID,
         "messages[1]: it has marks of channels"},
        {{question, 24, 1, 1, 0, 0, 4}, SPECBATCH_E_INVALID, "effort is 4; it must be 0 to 3"},
        {{question, 24, 1, 1, 0, 0, -1}, SPECBATCH_E_INVALID, "effort is -1"},
        {{question, 24, 1, 1, 0, 20270229, 0}, SPECBATCH_E_INVALID, "date is 20270229, and no day"},
        {{question, 24, 1, 1, 0, 21000229, 0}, SPECBATCH_E_INVALID, "date is 21000229"},
        {{question, 24, 1, 1, 0, 20261301, 0}, SPECBATCH_E_INVALID, "date is 20261301"},
        {{question, 24, 1, 1, 0, 20260001, 0}, SPECBATCH_E_INVALID, "date is 20260001"},
        {{question, 24, 1, 1, 0, 20260431, 0}, SPECBATCH_E_INVALID, "date is 20260431"},
        {{question, 24, 1, 1, 0, 20260400, 0}, SPECBATCH_E_INVALID, "date is 20260400"},
        {{question, 24, 1, 1, 0, 9991231, 0}, SPECBATCH_E_INVALID, "date is 9991231"},
        {{question, 24, 1, 1, 0, 100000101, 0}, SPECBATCH_E_INVALID, "date is 100000101"},
        {{question, 24, 1, 1, 0, -20261129, 0}, SPECBATCH_E_INVALID, "date is -20261129"},
    };
    struct sb_chat_text out = {.text = {.mem = &test_mem}};

    for (size_t i = 0; i < COUNT(cases); i++) {
        CHECK_ERROR(sb_chat_write(&cases[i].call, &out), cases[i].code, cases[i].why);
        sb_chat_text_clear(&out);
    }
}

TEST_BEGIN
RUN(test_raw);
RUN(test_vicuna);
RUN(test_vicuna_without_text);
RUN(test_vicuna_refuses_a_late_system_message);
RUN(test_qwen3);
RUN(test_qwen3_drops_earlier_reasoning);
RUN(test_qwen3_answer_behind_the_question);
RUN(test_qwen3_no_think);
RUN(test_chatml);
RUN(test_qwen2);
RUN(test_phi3);
RUN(test_phi4);
RUN(test_phi4_mini);
RUN(test_gemma);
RUN(test_gemma_refuses);
RUN(test_mistral);
RUN(test_mistral_without_a_question);
RUN(test_mistral_refuses);
RUN(test_llama3);
RUN(test_no_answer_prompt);
RUN(test_glm4);
RUN(test_glmz1);
RUN(test_deepseek_r1);
RUN(test_glm4_5);
RUN(test_llama3_1);
RUN(test_gpt_oss);
RUN(test_length);
RUN(test_newer_messages);
RUN(test_refused);
TEST_END
