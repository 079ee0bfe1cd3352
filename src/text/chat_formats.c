/*
 * The formats of conversations: a function for each, and the table of them at the end. Each makes
 * the text of the template that is named above it, for messages of the three roles and without
 * tools. The white space that a template strips is what Python strips, where templates run.
 *
 * To add a format: its number in specbatch.h, its function and row here, how its template is
 * recognised in chat_detect.c, and its tests, test_chat.c and compare_chat.py.
 */
#include <stdio.h>
#include <string.h>

#include "chat.h"
#include "chat_parts.h"
#include "specbatch.h"
#include "status.h"

static int32_t add_part(struct sb_chat_text *out, struct sb_part part)
{
    return sb_chat_content(out, part.at, part.n);
}

/* Appends a mark, a part of a content, and another mark. */
static int32_t add(struct sb_chat_text *out, const char *before, struct sb_part part,
                   const char *behind)
{
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_chat_mark(out, before));
    SB_TRY(add_part(out, part));
    SB_TRY(sb_chat_mark(out, behind));
done:
    return rc;
}

/* The mark before the answer that comes next, unless it is not wanted. */
static int32_t add_answer_prompt(const struct sb_chat *chat, struct sb_chat_text *out,
                                 const char *mark)
{
    return chat->flags & SPECBATCH_CHAT_NO_ANSWER_PROMPT ? SPECBATCH_OK : sb_chat_mark(out, mark);
}

/* ---------------------------------------------------------------------- raw and vicuna */

/* The contents, one after the other. */
static int32_t raw(const struct sb_chat *chat, struct sb_chat_text *out)
{
    int32_t rc = SPECBATCH_OK;

    for (size_t i = 0; i < chat->n; i++)
        SB_TRY(add_part(out, sb_part_of(&chat->turns[i])));
done:
    return rc;
}

/*
 * FastChat's vicuna_v1.1 (fastchat/conversation.py, ADD_COLON_TWO): SYSTEM USER: u ASSISTANT:
 * a</s>USER: u ASSISTANT:
 * A message without text is its role and a colon, with nothing behind it. The begin-of-sequence
 * token is the tokenizer's to add. FastChat puts </s> behind every second message, and here it is
 * behind the assistant's, which is the same where users and assistants take turns.
 */
static int32_t vicuna(const struct sb_chat *chat, struct sb_chat_text *out)
{
    static const char usual[] =
        "A chat between a curious user and an artificial intelligence assistant. "
        "The assistant gives helpful, detailed, and polite answers to the user's questions. ";
    size_t i = chat->turns[0].role == SB_ROLE_SYSTEM;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(i ? add(out, "", sb_part_of(&chat->turns[0]), " ") : sb_chat_mark(out, usual));
    for (; i < chat->n; i++) {
        const struct sb_turn *turn = &chat->turns[i];
        const int user = turn->role == SB_ROLE_USER;
        if (turn->role == SB_ROLE_SYSTEM)
            SB_FAIL(SPECBATCH_E_INVALID,
                    "messages[%zu]: this format has a system message only at the beginning", i);
        SB_TRY(sb_chat_mark(out, user ? "USER:" : "ASSISTANT:"));
        if (turn->n > 0)
            SB_TRY(add(out, " ", sb_part_of(turn), user ? " " : "</s>"));
    }
    SB_TRY(add_answer_prompt(chat, out, "ASSISTANT:"));
done:
    return rc;
}

/* ------------------------------------------------------------------------------ chatml */

static int32_t chatml_role(struct sb_chat_text *out, enum sb_role role)
{
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_chat_mark(out, "<|im_start|>"));
    SB_TRY(sb_chat_mark(out, sb_role_name(role)));
    SB_TRY(sb_chat_mark(out, "\n"));
done:
    return rc;
}

/* ChatML: <|im_start|>role\ncontent<|im_end|>\n for each message. */
static int32_t chatml(const struct sb_chat *chat, struct sb_chat_text *out)
{
    int32_t rc = SPECBATCH_OK;

    for (size_t i = 0; i < chat->n; i++) {
        SB_TRY(chatml_role(out, chat->turns[i].role));
        SB_TRY(add(out, "", sb_part_of(&chat->turns[i]), "<|im_end|>\n"));
    }
    SB_TRY(add_answer_prompt(chat, out, "<|im_start|>assistant\n"));
done:
    return rc;
}

/* ChatML that begins with a system message: the conversation's own or this one. */
static int32_t chatml_with(const char *usual, const struct sb_chat *chat, struct sb_chat_text *out)
{
    int32_t rc = SPECBATCH_OK;

    if (chat->turns[0].role != SB_ROLE_SYSTEM) {
        SB_TRY(chatml_role(out, SB_ROLE_SYSTEM));
        SB_TRY(sb_chat_mark(out, usual));
        SB_TRY(sb_chat_mark(out, "<|im_end|>\n"));
    }
    SB_TRY(chatml(chat, out));
done:
    return rc;
}

/* Qwen2-Instruct. */
static int32_t qwen2(const struct sb_chat *chat, struct sb_chat_text *out)
{
    return chatml_with("You are a helpful assistant.", chat, out);
}

/* Qwen2.5-Instruct. */
static int32_t qwen2_5(const struct sb_chat *chat, struct sb_chat_text *out)
{
    return chatml_with("You are Qwen, created by Alibaba Cloud. You are a helpful assistant.", chat,
                       out);
}

/* ------------------------------------------------------------------------------- qwen3 */

/* The reasoning of an answer. It stands before the first </think>, and behind the last <think>
 * there. Newlines at both ends are left out. */
static struct sb_part reasoning(struct sb_part content)
{
    const char *end = sb_part_find(content, "</think>");

    content.n = end ? (size_t)(end - content.at) : 0;
    content = sb_part_behind_last(sb_part_without_newlines_behind(content), "<think>");
    return sb_part_without_newlines_before(content);
}

/* Appends an answer. Its reasoning is kept only behind the last question, since it belongs to a
 * turn that is not over yet. */
static int32_t qwen3_answer(struct sb_part content, int behind_question, int is_last,
                            struct sb_chat_text *out)
{
    const struct sb_part thought = reasoning(content);
    int32_t rc = SPECBATCH_OK;

    if (sb_part_find(content, "</think>"))
        content = sb_part_without_newlines_before(sb_part_behind_last(content, "</think>"));
    if (behind_question && (is_last || thought.n > 0)) {
        SB_TRY(add(out, "<think>\n", thought, "\n</think>\n\n"));
        content = sb_part_without_newlines_before(content);
    }
    SB_TRY(add_part(out, content));
done:
    return rc;
}

/* Whether a message is a question of the user's. Results of tools have the same role, and are
 * none. */
static int is_question(const struct sb_turn *turn)
{
    const struct sb_part content = sb_part_of(turn);

    return turn->role == SB_ROLE_USER && !(sb_part_begins_with(content, "<tool_response>") &&
                                           sb_part_ends_with(content, "</tool_response>"));
}

/* Qwen3: ChatML with reasoning. Without thinking, the answer begins behind an empty one. */
static int32_t qwen3(const struct sb_chat *chat, struct sb_chat_text *out)
{
    const struct sb_turn *turns = chat->turns;
    size_t question = chat->n - 1;
    int32_t rc = SPECBATCH_OK;

    for (size_t i = 0; i < chat->n; i++)
        if (is_question(&turns[i]))
            question = i;
    for (size_t i = 0; i < chat->n; i++) {
        SB_TRY(chatml_role(out, turns[i].role));
        if (turns[i].role == SB_ROLE_ASSISTANT)
            SB_TRY(qwen3_answer(sb_part_of(&turns[i]), i > question, i == chat->n - 1, out));
        else
            SB_TRY(add_part(out, sb_part_of(&turns[i])));
        SB_TRY(sb_chat_mark(out, "<|im_end|>\n"));
    }
    SB_TRY(add_answer_prompt(chat, out, "<|im_start|>assistant\n"));
    if (chat->flags & SPECBATCH_CHAT_NO_THINK)
        SB_TRY(add_answer_prompt(chat, out, "<think>\n\n</think>\n\n"));
done:
    return rc;
}

/* --------------------------------------------------------------------------------- glm */

/* GLM-4-0414 and GLM-Z1-0414: all system messages come first, and no newline ends a turn.
 * visible_only: a turn loses its reasoning and the blanks around it. */
static int32_t glm_turns(const struct sb_chat *chat, int visible_only, struct sb_chat_text *out)
{
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_chat_mark(out, "[gMASK]<sop>"));
    for (size_t i = 0; i < chat->n; i++)
        if (chat->turns[i].role == SB_ROLE_SYSTEM)
            SB_TRY(add(out, "<|system|>\n", sb_part_of(&chat->turns[i]), ""));
    for (size_t i = 0; i < chat->n; i++) {
        const struct sb_turn *turn = &chat->turns[i];
        struct sb_part content = sb_part_of(turn);
        if (turn->role == SB_ROLE_SYSTEM)
            continue;
        if (visible_only)
            content = sb_part_stripped(sb_part_behind_last(content, "</think>"));
        SB_TRY(
            add(out, turn->role == SB_ROLE_USER ? "<|user|>\n" : "<|assistant|>\n", content, ""));
    }
done:
    return rc;
}

static int32_t glm4(const struct sb_chat *chat, struct sb_chat_text *out)
{
    int32_t rc = SPECBATCH_OK;

    SB_TRY(glm_turns(chat, 0, out));
    SB_TRY(add_answer_prompt(chat, out, "<|assistant|>"));
done:
    return rc;
}

/* GLM-Z1: every turn, the user's too, loses its reasoning and the blanks around it, and the answer
 * begins with reasoning. */
static int32_t glmz1(const struct sb_chat *chat, struct sb_chat_text *out)
{
    int32_t rc = SPECBATCH_OK;

    SB_TRY(glm_turns(chat, 1, out));
    SB_TRY(add_answer_prompt(chat, out, "<|assistant|>\n<think>"));
done:
    return rc;
}

/* GLM-4.5's answer: its reasoning, which is empty but behind the last question, and what is left of
 * the content without the blanks around it. */
static int32_t glm4_5_answer(struct sb_part content, int behind_question, struct sb_chat_text *out)
{
    const struct sb_part thought = sb_part_stripped(reasoning(content));
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_chat_mark(out, "<|assistant|>\n<think>"));
    if (behind_question)
        SB_TRY(add_part(out, thought));
    SB_TRY(sb_chat_mark(out, "</think>"));
    content = sb_part_stripped(sb_part_behind_last(content, "</think>"));
    if (content.n > 0)
        SB_TRY(add(out, "\n", content, ""));
done:
    return rc;
}

/* GLM-4.5: questions that are not to be thought about say so themselves. */
static int32_t glm4_5(const struct sb_chat *chat, struct sb_chat_text *out)
{
    static const char no_think[] = "/nothink";
    const int thinks = !(chat->flags & SPECBATCH_CHAT_NO_THINK);
    const struct sb_turn *turns = chat->turns;
    size_t question = 0, n_questions = 0;
    int32_t rc = SPECBATCH_OK;

    for (size_t i = 0; i < chat->n; i++)
        if (turns[i].role == SB_ROLE_USER) {
            question = i;
            n_questions++;
        }
    SB_TRY(sb_chat_mark(out, "[gMASK]<sop>"));
    for (size_t i = 0; i < chat->n; i++) {
        const struct sb_part content = sb_part_of(&turns[i]);
        if (turns[i].role == SB_ROLE_ASSISTANT)
            SB_TRY(glm4_5_answer(content, n_questions == 0 || i > question, out));
        else if (turns[i].role == SB_ROLE_SYSTEM)
            SB_TRY(add(out, "<|system|>\n", content, ""));
        else
            SB_TRY(add(out, "<|user|>\n", content,
                       thinks || sb_part_ends_with(content, no_think) ? "" : no_think));
    }
    SB_TRY(
        add_answer_prompt(chat, out, thinks ? "<|assistant|>" : "<|assistant|>\n<think></think>"));
done:
    return rc;
}

/* ------------------------------------------------------------------------------ llama3 */

/* The turns from the first-th on, and the answer's mark. */
static int32_t llama3_turns(const struct sb_chat *chat, size_t first, struct sb_chat_text *out)
{
    int32_t rc = SPECBATCH_OK;

    for (size_t i = first; i < chat->n; i++) {
        SB_TRY(sb_chat_mark(out, "<|start_header_id|>"));
        SB_TRY(sb_chat_mark(out, sb_role_name(chat->turns[i].role)));
        SB_TRY(add(out, "<|end_header_id|>\n\n", sb_part_stripped(sb_part_of(&chat->turns[i])),
                   "<|eot_id|>"));
    }
    SB_TRY(add_answer_prompt(chat, out, "<|start_header_id|>assistant<|end_header_id|>\n\n"));
done:
    return rc;
}

/* Llama 3, of April 2024. */
static int32_t llama3(const struct sb_chat *chat, struct sb_chat_text *out)
{
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_chat_mark(out, "<|begin_of_text|>"));
    SB_TRY(llama3_turns(chat, 0, out));
done:
    return rc;
}

/* Llama 3.1 and later: there always is a system message, and it begins with dates. The day is
 * written as "05 Jul 2024". The templates of 3.1 and 3.2 differ in what they do when they are not
 * told it. */
static int32_t llama3_1(const struct sb_chat *chat, struct sb_chat_text *out)
{
    static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    const struct sb_day day = chat->day.year ? chat->day : (struct sb_day){2024, 7, 26};
    const int is_instructed = chat->turns[0].role == SB_ROLE_SYSTEM;
    char today[40];
    int32_t rc = SPECBATCH_OK;

    snprintf(today, sizeof today, "Today Date: %02d %s %04d\n\n", day.day, months[day.month - 1],
             day.year);
    SB_TRY(sb_chat_mark(out, "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
                             "Cutting Knowledge Date: December 2023\n"));
    SB_TRY(sb_chat_mark(out, today));
    if (is_instructed)
        SB_TRY(add_part(out, sb_part_stripped(sb_part_of(&chat->turns[0]))));
    SB_TRY(sb_chat_mark(out, "<|eot_id|>"));
    SB_TRY(llama3_turns(chat, (size_t)is_instructed, out));
done:
    return rc;
}

/* ----------------------------------------------------------------------------- gpt-oss */

/* What the model is told of itself, the day and how to answer. */
static int32_t gpt_oss_system(const struct sb_chat *chat, struct sb_chat_text *out)
{
    static const char *const efforts[] = {"medium", "low", "medium", "high"};
    char facts[80];
    int32_t rc = SPECBATCH_OK;

    if (chat->day.year == 0)
        SB_FAIL(SPECBATCH_E_INVALID, "chat options: date is 0; the format gpt-oss says the day");
    snprintf(facts, sizeof facts, "Current date: %04d-%02d-%02d\n\nReasoning: %s\n\n",
             chat->day.year, chat->day.month, chat->day.day, efforts[chat->effort]);
    SB_TRY(sb_chat_mark(out, "<|start|>system<|message|>You are ChatGPT, a large language model "
                             "trained by OpenAI.\nKnowledge cutoff: 2024-06\n"));
    SB_TRY(sb_chat_mark(out, facts));
    SB_TRY(sb_chat_mark(out, "# Valid channels: analysis, commentary, final. Channel must be "
                             "included for every message.<|end|>"));
done:
    return rc;
}

/* An answer, which has lost its reasoning: the caller has taken out what is behind the mark of the
 * channel "final". The last one of a conversation without an answer to come ends in another mark.
 */
static int32_t gpt_oss_answer(const struct sb_chat *chat, size_t i, struct sb_chat_text *out)
{
    const struct sb_part content = sb_part_of(&chat->turns[i]);
    const int is_end = i + 1 == chat->n && chat->flags & SPECBATCH_CHAT_NO_ANSWER_PROMPT;
    int32_t rc = SPECBATCH_OK;

    if (sb_part_find(content, "<|channel|>analysis<|message|>") ||
        sb_part_find(content, "<|channel|>final<|message|>"))
        SB_FAIL(SPECBATCH_E_INVALID,
                "messages[%zu]: it has marks of channels; an answer's content is what is behind "
                "<|channel|>final<|message|>",
                i);
    SB_TRY(add(out, "<|start|>assistant<|channel|>final<|message|>", content,
               is_end ? "<|return|>" : "<|end|>"));
done:
    return rc;
}

/* gpt-oss: the format harmony. The conversation's system message is the developer's. */
static int32_t gpt_oss(const struct sb_chat *chat, struct sb_chat_text *out)
{
    const size_t first = chat->turns[0].role == SB_ROLE_SYSTEM;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(gpt_oss_system(chat, out));
    if (first && chat->turns[0].n > 0)
        SB_TRY(add(out, "<|start|>developer<|message|># Instructions\n\n",
                   sb_part_of(&chat->turns[0]), "\n\n<|end|>"));
    for (size_t i = first; i < chat->n; i++) {
        if (chat->turns[i].role == SB_ROLE_SYSTEM)
            SB_FAIL(SPECBATCH_E_INVALID,
                    "messages[%zu]: this format has a system message only at the beginning", i);
        if (chat->turns[i].role == SB_ROLE_ASSISTANT)
            SB_TRY(gpt_oss_answer(chat, i, out));
        else
            SB_TRY(add(out, "<|start|>user<|message|>", sb_part_of(&chat->turns[i]), "<|end|>"));
    }
    SB_TRY(add_answer_prompt(chat, out, "<|start|>assistant"));
done:
    return rc;
}

/* --------------------------------------------------------------------------------- phi */

/* Phi-3 and Phi-3.5. Where the answer's mark is not wanted, their templates and Phi-4-mini's end in
 * the tokenizer's end-of-sequence token. */
static int32_t phi3_turns(const struct sb_chat *chat, int empty_system, struct sb_chat_text *out)
{
    static const char *const marks[SB_ROLES] = {"<|system|>\n", "<|user|>\n", "<|assistant|>\n"};
    const int ends = chat->flags & SPECBATCH_CHAT_NO_ANSWER_PROMPT;
    int32_t rc = SPECBATCH_OK;

    for (size_t i = 0; i < chat->n; i++) {
        const struct sb_turn *turn = &chat->turns[i];
        if (turn->role != SB_ROLE_SYSTEM || turn->n > 0 || empty_system)
            SB_TRY(add(out, marks[turn->role], sb_part_of(turn), "<|end|>\n"));
    }
    SB_TRY(sb_chat_mark(out, ends ? "<|endoftext|>" : "<|assistant|>\n"));
done:
    return rc;
}

static int32_t phi3(const struct sb_chat *chat, struct sb_chat_text *out)
{
    return phi3_turns(chat, 1, out);
}

static int32_t phi3_5(const struct sb_chat *chat, struct sb_chat_text *out)
{
    return phi3_turns(chat, 0, out);
}

/* Phi-4: ChatML with a mark behind the role, and no newlines. */
static int32_t phi4(const struct sb_chat *chat, struct sb_chat_text *out)
{
    int32_t rc = SPECBATCH_OK;

    for (size_t i = 0; i < chat->n; i++) {
        SB_TRY(sb_chat_mark(out, "<|im_start|>"));
        SB_TRY(sb_chat_mark(out, sb_role_name(chat->turns[i].role)));
        SB_TRY(add(out, "<|im_sep|>", sb_part_of(&chat->turns[i]), "<|im_end|>"));
    }
    SB_TRY(add_answer_prompt(chat, out, "<|im_start|>assistant<|im_sep|>"));
done:
    return rc;
}

/* Phi-4-mini: Phi-3's marks, and no newlines. */
static int32_t phi4_mini(const struct sb_chat *chat, struct sb_chat_text *out)
{
    static const char *const marks[SB_ROLES] = {"<|system|>", "<|user|>", "<|assistant|>"};
    const int ends = chat->flags & SPECBATCH_CHAT_NO_ANSWER_PROMPT;
    int32_t rc = SPECBATCH_OK;

    for (size_t i = 0; i < chat->n; i++)
        SB_TRY(add(out, marks[chat->turns[i].role], sb_part_of(&chat->turns[i]), "<|end|>"));
    SB_TRY(sb_chat_mark(out, ends ? "<|endoftext|>" : "<|assistant|>"));
done:
    return rc;
}

/* ------------------------------------------------------------------------- deepseek r1 */

static int32_t deepseek_r1(const struct sb_chat *chat, struct sb_chat_text *out)
{
    struct sb_part system = {"", 0};
    int32_t rc = SPECBATCH_OK;

    for (size_t i = 0; i < chat->n; i++)
        if (chat->turns[i].role == SB_ROLE_SYSTEM)
            system = sb_part_of(&chat->turns[i]);
    SB_TRY(add(out, SB_R1_BEGIN, system, ""));
    for (size_t i = 0; i < chat->n; i++) {
        const struct sb_part content = sb_part_of(&chat->turns[i]);
        if (chat->turns[i].role == SB_ROLE_USER)
            SB_TRY(add(out, SB_R1_USER, content, ""));
        if (chat->turns[i].role == SB_ROLE_ASSISTANT)
            SB_TRY(add(out, SB_R1_ASSISTANT, sb_part_behind_last(content, "</think>"), SB_R1_END));
    }
    SB_TRY(add_answer_prompt(chat, out, SB_R1_ASSISTANT "<think>\n"));
done:
    return rc;
}

/* ------------------------------------------------------------------------------- gemma */

/* Gemma's turns, from a message on; the one before it is the system message, which begins the first
 * turn. Every other turn must be the user's. Whose the others are the templates do not ask, so that
 * a later system message may stand there. */
static int32_t gemma_turns(const struct sb_chat *chat, size_t first, struct sb_chat_text *out)
{
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_chat_mark(out, "<bos>"));
    for (size_t i = first; i < chat->n; i++) {
        const struct sb_turn *turn = &chat->turns[i];
        const int model = turn->role == SB_ROLE_ASSISTANT;
        if ((turn->role == SB_ROLE_USER) != ((i - first) % 2 == 0))
            SB_FAIL(SPECBATCH_E_INVALID,
                    "messages[%zu]: in this format the user has every other turn, the first too",
                    i);
        SB_TRY(sb_chat_mark(out, "<start_of_turn>"));
        SB_TRY(sb_chat_mark(out, model ? "model" : sb_role_name(turn->role)));
        SB_TRY(sb_chat_mark(out, "\n"));
        if (i > 0 && i == first)
            SB_TRY(add(out, "", sb_part_of(&chat->turns[0]), "\n\n"));
        SB_TRY(add(out, "", sb_part_stripped(sb_part_of(turn)), "<end_of_turn>\n"));
    }
    SB_TRY(add_answer_prompt(chat, out, "<start_of_turn>model\n"));
done:
    return rc;
}

/* Gemma and Gemma 2, which have no system message at the beginning. */
static int32_t gemma2(const struct sb_chat *chat, struct sb_chat_text *out)
{
    if (chat->turns[0].role == SB_ROLE_SYSTEM)
        return sb_fail(SPECBATCH_E_INVALID, "messages[0]: this format has no system message");
    return gemma_turns(chat, 0, out);
}

static int32_t gemma3(const struct sb_chat *chat, struct sb_chat_text *out)
{
    return gemma_turns(chat, chat->turns[0].role == SB_ROLE_SYSTEM, out);
}

/* ----------------------------------------------------------------------------- mistral */

/* How the versions of Mistral's templates differ. */
struct instruct {
    const char *begin, *end; /* of a question */
    const char *answer;      /* before an answer */
    int strips;              /* answers lose the blanks at their ends */
    int system_last;         /* the system message is in the last turn and not in the first */
};

/* Mistral's turns, which begin behind the system message if there is one. It goes into a question,
 * and is left out where that turn is none. No mark begins an answer. */
static int32_t instruct_turns(const struct instruct *how, const struct sb_chat *chat,
                              struct sb_chat_text *out)
{
    const size_t first = chat->turns[0].role == SB_ROLE_SYSTEM;
    const size_t with_system = how->system_last ? chat->n - 1 : first;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_chat_mark(out, "<s>"));
    for (size_t i = first; i < chat->n; i++) {
        const struct sb_part content = sb_part_of(&chat->turns[i]);
        const int answers = (i - first) % 2;
        if (chat->turns[i].role != (answers ? SB_ROLE_ASSISTANT : SB_ROLE_USER))
            SB_FAIL(SPECBATCH_E_INVALID,
                    "messages[%zu]: in this format user and assistant take turns, behind a system "
                    "message if there is one",
                    i);
        if (answers) {
            SB_TRY(
                add(out, how->answer, how->strips ? sb_part_stripped(content) : content, "</s>"));
            continue;
        }
        SB_TRY(sb_chat_mark(out, how->begin));
        if (first > 0 && i == with_system)
            SB_TRY(add(out, "", sb_part_of(&chat->turns[0]), "\n\n"));
        SB_TRY(add(out, "", content, how->end));
    }
done:
    return rc;
}

/* Mistral-7B-Instruct-v0.2, as of Mistral's tokenizer V1. */
static int32_t mistral_v1(const struct sb_chat *chat, struct sb_chat_text *out)
{
    static const struct instruct how = {" [INST] ", " [/INST]", " ", 0, 0};
    return instruct_turns(&how, chat, out);
}

/* Mistral-7B-Instruct-v0.3 and Mistral-Large-Instruct-2407: V3. */
static int32_t mistral_v3(const struct sb_chat *chat, struct sb_chat_text *out)
{
    static const struct instruct how = {"[INST] ", "[/INST]", " ", 1, 1};
    return instruct_turns(&how, chat, out);
}

/* Mistral-Nemo-Instruct-2407: V3 with the tokenizer Tekken. */
static int32_t mistral_v3_tekken(const struct sb_chat *chat, struct sb_chat_text *out)
{
    static const struct instruct how = {"[INST]", "[/INST]", "", 0, 1};
    return instruct_turns(&how, chat, out);
}

/* Mistral-Large-Instruct-2411: V7. Roles may follow each other as they like. */
static int32_t mistral_v7(const struct sb_chat *chat, struct sb_chat_text *out)
{
    static const char *const marks[SB_ROLES][2] = {
        {"[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]"}, {"[INST] ", "[/INST]"}, {" ", "</s>"}};
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_chat_mark(out, "<s>"));
    for (size_t i = 0; i < chat->n; i++) {
        const struct sb_turn *turn = &chat->turns[i];
        SB_TRY(add(out, marks[turn->role][0], sb_part_of(turn), marks[turn->role][1]));
    }
done:
    return rc;
}

/* --------------------------------------------------------------------------- the table */

static const char *const eos[] = {"</s>", NULL};
static const char *const im[] = {"<|im_start|>", "<|im_end|>", NULL};
static const char *const glm[] = {"[gMASK]",       "<sop>",           "<|system|>", "<|user|>",
                                  "<|assistant|>", "<|observation|>", NULL};
static const char *const headers[] = {"<|begin_of_text|>", "<|start_header_id|>",
                                      "<|end_header_id|>", "<|eot_id|>", NULL};
static const char *const harmony[] = {"<|start|>",  "<|message|>", "<|channel|>", "<|end|>",
                                      "<|return|>", "<|call|>",    NULL};

static const char *const phi[] = {"<|system|>", "<|user|>",      "<|assistant|>",
                                  "<|end|>",    "<|endoftext|>", NULL};
static const char *const seps[] = {"<|im_start|>", "<|im_sep|>", "<|im_end|>", NULL};
static const char *const turn[] = {"<bos>", "<start_of_turn>", "<end_of_turn>", NULL};
static const char *const inst[] = {
    "<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", NULL};

static const char *const r1[] = {SB_R1_BEGIN, SB_R1_END, SB_R1_USER, SB_R1_ASSISTANT, NULL};

static const struct sb_chat_format formats[] = {
    [SPECBATCH_CHAT_AUTO] = {"auto", NULL, NULL, 0, 0},
    [SPECBATCH_CHAT_RAW] = {"raw", raw, NULL, 0, 0},
    [SPECBATCH_CHAT_VICUNA] = {"vicuna", vicuna, eos, 0, 0},
    [SPECBATCH_CHAT_QWEN3] = {"qwen3", qwen3, im, 1, 0},
    [SPECBATCH_CHAT_GLM4] = {"glm4", glm4, glm, 1, 0},
    [SPECBATCH_CHAT_GLMZ1] = {"glmz1", glmz1, glm, 1, 1},
    [SPECBATCH_CHAT_LLAMA3] = {"llama3", llama3, headers, 1, 0},
    [SPECBATCH_CHAT_CHATML] = {"chatml", chatml, im, 1, 0},
    [SPECBATCH_CHAT_QWEN2] = {"qwen2", qwen2, im, 1, 0},
    [SPECBATCH_CHAT_QWEN2_5] = {"qwen2.5", qwen2_5, im, 1, 0},
    [SPECBATCH_CHAT_PHI3] = {"phi3", phi3, phi, 1, 0},
    [SPECBATCH_CHAT_PHI3_5] = {"phi3.5", phi3_5, phi, 1, 0},
    [SPECBATCH_CHAT_PHI4] = {"phi4", phi4, seps, 1, 0},
    [SPECBATCH_CHAT_GEMMA2] = {"gemma2", gemma2, turn, 1, 0},
    [SPECBATCH_CHAT_GEMMA3] = {"gemma3", gemma3, turn, 1, 0},
    [SPECBATCH_CHAT_MISTRAL_V1] = {"mistral-v1", mistral_v1, inst, 1, 0},
    [SPECBATCH_CHAT_MISTRAL_V3] = {"mistral-v3", mistral_v3, inst, 1, 0},
    [SPECBATCH_CHAT_MISTRAL_V3_TEKKEN] = {"mistral-v3-tekken", mistral_v3_tekken, inst, 1, 0},
    [SPECBATCH_CHAT_MISTRAL_V7] = {"mistral-v7", mistral_v7, inst, 1, 0},
    [SPECBATCH_CHAT_PHI4_MINI] = {"phi4-mini", phi4_mini, phi, 1, 0},
    [SPECBATCH_CHAT_GLM4_5] = {"glm4.5", glm4_5, glm, 1, 0},
    [SPECBATCH_CHAT_LLAMA3_1] = {"llama3.1", llama3_1, headers, 1, 0},
    [SPECBATCH_CHAT_LLAMA3_2] = {"llama3.2", llama3_1, headers, 1, 0},
    [SPECBATCH_CHAT_GPT_OSS] = {"gpt-oss", gpt_oss, harmony, 1, 1},
    [SPECBATCH_CHAT_DEEPSEEK_R1] = {"deepseek-r1", deepseek_r1, r1, 1, 1},
};

int32_t sb_chat_count(void)
{
    return (int32_t)(sizeof formats / sizeof *formats);
}

const char *sb_chat_name(int32_t format)
{
    return format >= 0 && format < sb_chat_count() ? formats[format].name : NULL;
}

const struct sb_chat_format *sb_chat_format(int32_t format)
{
    return sb_chat_name(format) && formats[format].write ? &formats[format] : NULL;
}

const char *sb_role_name(enum sb_role role)
{
    static const char *const names[SB_ROLES] = {"system", "user", "assistant"};
    return names[role];
}
