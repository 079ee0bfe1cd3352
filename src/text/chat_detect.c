/*
 * Which format a checkpoint's chat template is.
 *
 * A template is a Jinja program, and programs of different spelling do the same. It is first
 * written in one spelling: inside {{ }} and {% %} blanks between words go, strings are in single
 * quotes, and a newline in a string is \n; comments go; what is outside, text that Jinja copies,
 * stays, but for the blanks that {{- and -%} take away. Then it is held against a list. A line of
 * the list has the whole template, in this spelling, but for branches that only tools, their
 * results and contents which are no texts come to, since such messages are not taken. It is in
 * pieces, and between two of them is such a branch: from the end of the one to the first place, in
 * no statement that begins in between, where the next one is.
 *
 * To be wrong is worse than not to know: a model answers a prompt that is almost right, only badly.
 * So a template that some revision or fine-tune has changed elsewhere is not known. (To look for
 * pieces anywhere was not enough: a template that set enable_thinking in front of Qwen3's was taken
 * for Qwen3's.)
 *
 * How far the lines are tested: the published templates of Llama 3, 3.1 and 3.2, Qwen2.5, Qwen3,
 * Qwen3-Instruct-2507, Phi-3, Phi-3.5, Gemma 2, Gemma 3, gpt-oss and DeepSeek-R1-Distill come with
 * the Python package trl, and test/text/compare_chat.py tries them only where that is installed.
 * Those of ChatML, Qwen2, Phi-4, Phi-4-mini, Mistral, GLM-Z1, GLM-4.5 and Qwen3's first revision it
 * has as copies written after the published ones, with less of what they do with tools. For
 * GLM-4-0414 no published template was found: its line follows that of GLM-Z1-0414, without what
 * concerns thinking.
 */
#include <string.h>

#include "chat.h"
#include "file.h"
#include "json.h"
#include "specbatch.h"
#include "status.h"

enum {
    CONFIG_MAX = 1 << 26,  /* bytes of tokenizer_config.json, which may list all added tokens */
    TEMPLATE_MAX = 1 << 20 /* bytes of a template */
};

enum { PIECES_MAX = 11 };

struct known {
    int32_t format;
    const char *pieces[PIECES_MAX]; /* ends in NULL, unless it is full */
};

#define CHATML_TURN "{{'<|im_start|>'+message['role']+'\\n'+message['content']+'<|im_end|>'+'\\n'}}"
#define CHATML_PROMPT "{%ifadd_generation_prompt%}{{'<|im_start|>assistant\\n'}}{%endif%}"
#define LLAMA3_TURN                                                                             \
    "{%setloop_messages=messages%}{%formessageinloop_messages%}"                                \
    "{%setcontent='<|start_header_id|>'+message['role']+'<|end_header_id|>\\n\\n'"              \
    "+message['content']|trim+'<|eot_id|>'%}{%ifloop.index0==0%}{%setcontent=bos_token+content" \
    "%}{%endif%}{{content}}{%endfor%}"
#define LLAMA3_1_DATE "{%-setdate_string='26 Jul 2024'%}"
#define LLAMA3_1_BEGIN(date)                                                                 \
    "{{-bos_token}}{%-ifcustom_toolsisdefined%}{%-settools=custom_tools%}{%-endif%}"         \
    "{%-ifnottools_in_user_messageisdefined%}{%-settools_in_user_message=true%}{%-endif%}"   \
    "{%-ifnotdate_stringisdefined%}" date "{%-endif%}"                                       \
    "{%-ifnottoolsisdefined%}{%-settools=none%}{%-endif%}"                                   \
    "{%-ifmessages[0]['role']=='system'%}{%-setsystem_message=messages[0]['content']|trim%}" \
    "{%-setmessages=messages[1:]%}{%-else%}{%-setsystem_message=''%}{%-endif%}"              \
    "{{-'<|start_header_id|>system<|end_header_id|>\\n\\n'}}"
#define LLAMA3_1_DATES                                          \
    "{%-endif%}{{-'Cutting Knowledge Date: December 2023\\n'}}" \
    "{{-'Today Date: '+date_string+'\\n\\n'}}{%-iftoolsisnotnoneandnottools_in_user_message%}"
#define LLAMA3_1_INSTRUCTED \
    "{%-endif%}{{-system_message}}{{-'<|eot_id|>'}}{%-iftools_in_user_messageandnottoolsisnone%}"
#define LLAMA3_1_TURN                                                                           \
    "{%-endif%}{%-formessageinmessages%}{%-ifnot(message.role=='ipython'ormessage.role=='tool'" \
    "or'tool_calls'inmessage)%}{{-'<|start_header_id|>'+message['role']+"                       \
    "'<|end_header_id|>\\n\\n'+message['content']|trim+'<|eot_id|>'}}"                          \
    "{%-elif'tool_calls'inmessage%}"
#define LLAMA3_1_TOOL "{%-elifmessage.role=='tool'ormessage.role=='ipython'%}"
#define LLAMA3_1_END                                    \
    "{%-endif%}{%-endfor%}{%-ifadd_generation_prompt%}" \
    "{{-'<|start_header_id|>assistant<|end_header_id|>\\n\\n'}}{%-endif%}"
#define GPT_OSS_SYSTEM                                                                    \
    "{%-endmacro-%}{%-macrobuild_system_message()-%}{%-ifmodel_identityisnotdefined%}"    \
    "{%-setmodel_identity='You are ChatGPT, a large language model trained by OpenAI.'%}" \
    "{%-endif%}{{-model_identity+'\\n'}}{{-'Knowledge cutoff: 2024-06\\n'}}"              \
    "{{-'Current date: '+strftime_now('%Y-%m-%d')+'\\n\\n'}}"                             \
    "{%-ifreasoning_effortisnotdefined%}{%-setreasoning_effort='medium'%}{%-endif%}"      \
    "{{-'Reasoning: '+reasoning_effort+'\\n\\n'}}{%-ifbuiltin_tools%}"
#define GPT_OSS_DEVELOPER                                                                   \
    "{%-endif-%}{%-endmacro-%}{{-'<|start|>system<|message|>'}}{{-build_system_message()}}" \
    "{{-'<|end|>'}}{%-ifmessages[0].role=='developer'ormessages[0].role=='system'%}"        \
    "{%-setdeveloper_message=messages[0].content%}{%-setloop_messages=messages[1:]%}"       \
    "{%-else%}{%-setdeveloper_message=''%}{%-setloop_messages=messages%}{%-endif%}"         \
    "{%-ifdeveloper_messageortools%}{{-'<|start|>developer<|message|>'}}"                   \
    "{%-ifdeveloper_message%}{{-'# Instructions\\n\\n'}}{{-developer_message}}"             \
    "{{-'\\n\\n'}}{%-endif%}{%-iftools-%}"
#define GPT_OSS_ANSWER                                                                          \
    "{%-endif-%}{{-'<|end|>'}}{%-endif%}{%-setlast_tool_call=namespace(name=none)%}"            \
    "{%-formessageinloop_messages-%}{%-ifmessage.role=='assistant'-%}{%-if'content'inmessage%}" \
    "{%-if'<|channel|>analysis<|message|>'inmessage.contentor"                                  \
    "'<|channel|>final<|message|>'inmessage.content%}{{-raise_exception('You have passed a "    \
    "message containing <|channel|> tags in the content field. Instead of doing this, you "     \
    "should pass analysis messages (the string between '<|message|>' and '<|end|>') in the "    \
    "'thinking' field, and final messages (the string between '<|message|>' and '<|end|>') "    \
    "in the 'content' field.')}}{%-endif%}{%-endif%}{%-if'thinking'inmessage%}"
#define GPT_OSS_FINAL "{{-'<|start|>assistant<|channel|>final<|message|>'+message.content+"
#define QWEN_TURN "{{-'<|im_start|>'+message.role+'\\n'+"
#define QWEN_PROMPT "{%-ifadd_generation_prompt%}{{-'<|im_start|>assistant\\n'}}"
#define QWEN_USER "{%-if(message.role=='user')or(message.role=='system'andnotloop.first)%}"
#define QWEN_SYSTEM                              \
    "{%-else%}{%-ifmessages[0].role=='system'%}" \
    "{{-'<|im_start|>system\\n'+messages[0].content+'<|im_end|>\\n'}}{%-endif%}{%-endif%}"
#define QWEN_CONTENT                                                                           \
    "{%-ifmessage.contentisstring%}{%-setcontent=message.content%}{%-else%}{%-setcontent=''%}" \
    "{%-endif%}"
#define QWEN3_QUESTION(is_string)                                                     \
    "{%-setns=namespace(multi_step_tool=true,last_query_index=messages|length-1)%}"   \
    "{%-formessageinmessages[::-1]%}{%-setindex=(messages|length-1)-loop.index0%}"    \
    "{%-ifns.multi_step_toolandmessage.role=='user'and" is_string                     \
    "not(message.content.startswith('<tool_response>')and"                            \
    "message.content.endswith('</tool_response>'))%}{%-setns.multi_step_tool=false%}" \
    "{%-setns.last_query_index=index%}{%-endif%}{%-endfor%}{%-formessageinmessages%}"
#define QWEN3_REASONING ".split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n')%}"
#define QWEN3_ANSWER                                                                             \
    "{%-endif%}{%-endif%}"                                                                       \
    "{%-ifloop.index0>ns.last_query_index%}{%-ifloop.lastor(notloop.lastandreasoning_content)%}" \
    "{{-'<|im_start|>'+message.role+'\\n<think>\\n'+reasoning_content.strip('\\n')"              \
    "+'\\n</think>\\n\\n'+content.lstrip('\\n')}}{%-else%}" QWEN_TURN "content}}{%-endif%}"      \
    "{%-else%}" QWEN_TURN "content}}{%-endif%}{%-ifmessage.tool_calls%}"
#define QWEN3_END                                                                                  \
    "{%-endif%}{%-endfor%}" QWEN_PROMPT "{%-ifenable_thinkingisdefinedandenable_thinkingisfalse%}" \
    "{{-'<think>\\n\\n</think>\\n\\n'}}{%-endif%}{%-endif%}"
#define QWEN_TOOL "{%-endif%}{{-'<|im_end|>\\n'}}{%-elifmessage.role=='tool'%}"
#define GLM_BEGIN "[gMASK]<sop>{%-iftools-%}"
#define GLM_TURNS(set_visible, text)                                                         \
    "{%-endif-%}{%-formsginmessages%}{%-ifmsg.role=='system'%}\n<|system|>\n{{msg.content}}" \
    "{%-endif%}{%-endfor%}{%-formessageinmessagesifmessage.role!='system'%}"                 \
    "{%-setrole=message['role']%}{%-setcontent=message['content']%}" set_visible             \
    "{%-setmeta=message.get('metadata','')%}{%-ifrole=='user'%}\n<|user|>\n{{" text "}}"     \
    "{%-elifrole=='assistant'andnotmeta%}\n<|assistant|>\n{{" text "}}"                      \
    "{%-elifrole=='assistant'andmeta%}"
#define GLM_TOOL "{%-elifrole=='observation'%}"
#define GLM_END(prompt) \
    "{%-endif%}{%-endfor%}\n{%ifadd_generation_prompt%}<|assistant|>" prompt "{%endif%}"
#define GLM4_5_TEXT                                                                  \
    "{%-endif-%}{%-macrovisible_text(content)-%}{%-ifcontentisstring-%}{{-content}}" \
    "{%-elifcontentisiterableandcontentisnotmapping-%}"
#define GLM4_5_TURNS                                                                           \
    "{%-else-%}{{-content}}{%-endif-%}{%-endmacro-%}{%-setns=namespace(last_user_index=-1)%}"  \
    "{%-forminmessages%}{%-ifm.role=='user'%}\n        {%setns.last_user_index=loop.index0-%}" \
    "{%-endif%}{%-endfor%}\n{%forminmessages%}{%-ifm.role=='user'-%}<|user|>\n"                \
    "{{visible_text(m.content)}}{{-'/nothink'if(enable_thinkingisdefinedandnotenable_thinking" \
    "andnotvisible_text(m.content).endswith('/nothink'))else''-}}"                             \
    "{%-elifm.role=='assistant'-%}<|assistant|>{%-setreasoning_content=''%}"                   \
    "{%-setcontent=visible_text(m.content)%}{%-ifm.reasoning_contentisstring%}"                \
    "{%-setreasoning_content=m.reasoning_content%}{%-else%}{%-if'</think>'incontent%}"         \
    "{%-setreasoning_content=content" QWEN3_REASONING                                          \
    "{%-setcontent=content.split('</think>')[-1].lstrip('\\n')%}{%-endif%}{%-endif%}"          \
    "{%-ifloop.index0>ns.last_user_indexandreasoning_content-%}"                               \
    "{{'\\n<think>'+reasoning_content.strip()+'</think>'}}{%-else-%}{{'\\n<think></think>'}}"  \
    "{%-endif-%}{%-ifcontent.strip()-%}{{'\\n'+content.strip()}}{%-endif-%}{%ifm.tool_calls%}"
#define GLM4_5_END                                                                                 \
    "{%-elifm.role=='system'-%}<|system|>\n{{visible_text(m.content)}}{%-endif-%}{%-endfor-%}"     \
    "{%-ifadd_generation_prompt-%}<|assistant|>{{-'\\n<think></think>'if(enable_thinkingisdefined" \
    "andnotenable_thinking)else''-}}{%-endif-%}"
#define PHI3_TURNS(system)                                                                        \
    "{%formessageinmessages%}{%if" system "%}{{'<|system|>\\n'+message['content']+"               \
    "'<|end|>\\n'}}{%elifmessage['role']=='user'%}{{'<|user|>\\n'+message['content']+"            \
    "'<|end|>\\n'}}{%elifmessage['role']=='assistant'%}{{'<|assistant|>\\n'+message['content']"   \
    "+'<|end|>\\n'}}{%endif%}{%endfor%}{%ifadd_generation_prompt%}{{'<|assistant|>\\n'}}{%else%}" \
    "{{eos_token}}{%endif%}"
#define PHI4_TURN(role)                                   \
    "(message['role']=='" role "')%}{{'<|im_start|>" role \
    "<|im_sep|>'+message['content']+'<|im_end|>'}}"
#define IS_OUT_OF_TURN "(message['role']=='user')!=(loop.index0%2==0)"
#define GEMMA_ALTERNATE "'Conversation roles must alternate user/assistant/user/assistant/...'"
#define GEMMA_ROLE(minus)                                                                    \
    "{%" minus "if(message['role']=='assistant')" minus "%}{%" minus "setrole='model'" minus \
    "%}{%" minus "else" minus "%}{%" minus "setrole=message['role']" minus "%}{%" minus      \
    "endif" minus "%}"
#define MISTRAL_SYSTEM                                                                  \
    "{%-ifmessages[0]['role']=='system'%}{%-setsystem_message=messages[0]['content']%}" \
    "{%-setloop_messages=messages[1:]%}{%-else%}{%-setloop_messages=messages%}{%-endif%}"
#define MISTRAL_ALTERNATE                                                                       \
    "{{-raise_exception('After the optional system message, conversation roles must alternate " \
    "user/assistant/user/assistant/...')}}{%-endif%}"
#define MISTRAL_USER(is_with_system, begin, end)                                     \
    "{%-if" is_with_system "andsystem_messageisdefined%}"                            \
    "{{-'" begin "'+system_message+'\\n\\n'+message['content']+'" end "'}}{%-else%}" \
    "{{-'" begin "'+message['content']+'" end "'}}{%-endif%}"
#define MISTRAL_END                                                                       \
    "{%-else%}{{-raise_exception('Only user and assistant roles are supported, with the " \
    "exception of an initial optional system message!')}}{%-endif%}{%-endfor%}"
#define MISTRAL_CALLS "message.tool_callsisdefinedandmessage.tool_callsisnotnone"
#define MISTRAL_V3_BEGIN(check)                                                          \
    MISTRAL_SYSTEM                                                                       \
    "{%-ifnottoolsisdefined%}{%-settools=none%}{%-endif%}"                               \
    "{%-setuser_messages=loop_messages|selectattr('role','equalto','user')|list%}" check \
    "{%-endfor%}{{-bos_token}}"                                                          \
    "{%-formessageinloop_messages%}{%-ifmessage['role']=='user'%}"                       \
    "{%-iftoolsisnotnoneand(message==user_messages[-1])%}"
#define MISTRAL_V3_CHECK                                                                  \
    "{%-setns=namespace()%}{%-setns.index=0%}{%-formessageinloop_messages%}"              \
    "{%-ifnot(message.role=='tool'ormessage.role=='tool_results'or(" MISTRAL_CALLS "))%}" \
    "{%-if(message['role']=='user')!=(ns.index%2==0)%}" MISTRAL_ALTERNATE                 \
    "{%-setns.index=ns.index+1%}{%-endif%}"
#define MISTRAL_V3_OLD_CHECK                                                             \
    "{%-formessageinloop_messages|rejectattr('role','equalto','tool')|"                  \
    "rejectattr('role','equalto','tool_results')|selectattr('tool_calls','undefined')%}" \
    "{%-if" IS_OUT_OF_TURN "%}" MISTRAL_ALTERNATE
#define MISTRAL_V3_ANSWER(answer)                                    \
    "{%-elifmessage['role']=='assistant'%}{{-" answer "+eos_token}}" \
    "{%-elifmessage['role']=='tool_results'ormessage['role']=='tool'%}"

#define R1_BEGIN                                                                   \
    "{%setns=namespace(is_first=false,is_tool=false,is_output_first=true,"         \
    "system_prompt='')%}{%-formessageinmessages%}{%-ifmessage['role']=='system'%}" \
    "{%setns.system_prompt=message['content']%}{%-endif%}{%-endfor%}"              \
    "{{bos_token}}{{ns.system_prompt}}{%-formessageinmessages%}"                   \
    "{%-ifmessage['role']=='user'%}{%-setns.is_tool=false-%}"                      \
    "{{'" SB_R1_USER "'+message['content']}}{%-endif%}"                            \
    "{%-ifmessage['role']=='assistant'andmessage['content']isnone%}"
#define R1_ANSWER                                                           \
    "{%-else%}{%setcontent=message['content']%}{%if'</think>'incontent%}"   \
    "{%setcontent=content.split('</think>')[-1]%}{%endif%}"                 \
    "{{'" SB_R1_ASSISTANT "'+content+'" SB_R1_END "'}}{%-endif%}{%-endif%}" \
    "{%-ifmessage['role']=='tool'%}"

/* clang-format off */
static const struct known known[] = {
    {SPECBATCH_CHAT_CHATML,
     {"{%formessageinmessages%}" CHATML_TURN "{%endfor%}" CHATML_PROMPT}},
    {SPECBATCH_CHAT_CHATML, /* Qwen3-Instruct-2507 */
     {"{%-iftools%}",
      QWEN_SYSTEM "{%-formessageinmessages%}" QWEN_CONTENT QWEN_USER
      QWEN_TURN "content+'<|im_end|>'+'\\n'}}{%-elifmessage.role=='assistant'%}"
      QWEN_TURN "content}}{%-ifmessage.tool_calls%}",
      QWEN_TOOL,
      "{%-endif%}{%-endfor%}" QWEN_PROMPT "{%-endif%}"}},
    {SPECBATCH_CHAT_QWEN2,
     {"{%formessageinmessages%}{%ifloop.firstandmessages[0]['role']!='system'%}"
      "{{'<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n'}}{%endif%}"
      CHATML_TURN "{%endfor%}" CHATML_PROMPT}},
    {SPECBATCH_CHAT_QWEN2_5,
     {"{%-iftools%}",
      "{%-else%}{%-ifmessages[0]['role']=='system'%}"
      "{{-'<|im_start|>system\\n'+messages[0]['content']+'<|im_end|>\\n'}}{%-else%}"
      "{{-'<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
      "assistant.<|im_end|>\\n'}}{%-endif%}{%-endif%}{%-formessageinmessages%}"
      "{%-if(message.role=='user')or(message.role=='system'andnotloop.first)or"
      "(message.role=='assistant'andnotmessage.tool_calls)%}"
      QWEN_TURN "message.content+'<|im_end|>'+'\\n'}}{%-elifmessage.role=='assistant'%}",
      "{%-elifmessage.role=='tool'%}",
      "{%-endif%}{%-endfor%}" QWEN_PROMPT "{%-endif%}"}},
    {SPECBATCH_CHAT_QWEN3, /* the first revision */
     {"{%-iftools%}",
      QWEN_SYSTEM QWEN3_QUESTION("") QWEN_USER
      QWEN_TURN "message.content+'<|im_end|>'+'\\n'}}{%-elifmessage.role=='assistant'%}"
      "{%-setcontent=message.content%}{%-setreasoning_content=''%}"
      "{%-ifmessage.reasoning_contentisdefinedandmessage.reasoning_contentisnotnone%}"
      "{%-setreasoning_content=message.reasoning_content%}{%-else%}"
      "{%-if'</think>'inmessage.content%}"
      "{%-setcontent=message.content.split('</think>')[-1].lstrip('\\n')%}"
      "{%-setreasoning_content=message.content" QWEN3_REASONING QWEN3_ANSWER,
      QWEN_TOOL, QWEN3_END}},
    {SPECBATCH_CHAT_QWEN3,
     {"{%-iftools%}",
      QWEN_SYSTEM QWEN3_QUESTION("message.contentisstringand") QWEN_CONTENT QWEN_USER
      QWEN_TURN "content+'<|im_end|>'+'\\n'}}{%-elifmessage.role=='assistant'%}"
      "{%-setreasoning_content=''%}{%-ifmessage.reasoning_contentisstring%}"
      "{%-setreasoning_content=message.reasoning_content%}{%-else%}"
      "{%-if'</think>'incontent%}{%-setreasoning_content=content" QWEN3_REASONING
      "{%-setcontent=content.split('</think>')[-1].lstrip('\\n')%}" QWEN3_ANSWER,
      QWEN_TOOL, QWEN3_END}},
    {SPECBATCH_CHAT_LLAMA3,
     {LLAMA3_TURN "{%ifadd_generation_prompt%}"
      "{{'<|start_header_id|>assistant<|end_header_id|>\\n\\n'}}{%endif%}"}},
    {SPECBATCH_CHAT_LLAMA3, /* the first revision, which always ends in the answer's mark */
     {LLAMA3_TURN "{{'<|start_header_id|>assistant<|end_header_id|>\\n\\n'}}"}},
    {SPECBATCH_CHAT_LLAMA3_1,
     {LLAMA3_1_BEGIN(LLAMA3_1_DATE) "{%-ifbuiltin_toolsisdefinedortoolsisnotnone%}",
      "{%-endif%}{%-ifbuiltin_toolsisdefined%}",
      LLAMA3_1_DATES, LLAMA3_1_INSTRUCTED, LLAMA3_1_TURN, LLAMA3_1_TOOL, LLAMA3_1_END}},
    {SPECBATCH_CHAT_LLAMA3_2,
     {LLAMA3_1_BEGIN("{%-ifstrftime_nowisdefined%}{%-setdate_string=strftime_now('%d %b %Y')%}"
                     "{%-else%}" LLAMA3_1_DATE "{%-endif%}") "{%-iftoolsisnotnone%}",
      LLAMA3_1_DATES, LLAMA3_1_INSTRUCTED, LLAMA3_1_TURN, LLAMA3_1_TOOL, LLAMA3_1_END}},
    {SPECBATCH_CHAT_GPT_OSS,
     {"{%-macrorender_typescript_type(param_spec,required_params,is_nullable=false)-%}",
      "{%-endmacro-%}{%-macrorender_tool_namespace(namespace_name,tools)-%}",
      "{%-endmacro-%}{%-macrorender_builtin_tools(browser_tool,python_tool)-%}",
      GPT_OSS_SYSTEM,
      "{%-endif-%}{{-'# Valid channels: analysis, commentary, final. Channel must be included "
      "for every message.'}}{%-iftools-%}",
      GPT_OSS_DEVELOPER, GPT_OSS_ANSWER, "{%-endif%}{%-if'tool_calls'inmessage%}",
      "{%-elifloop.lastandnotadd_generation_prompt%}{%-if'thinking'inmessage%}",
      "{%-endif%}" GPT_OSS_FINAL "'<|return|>'}}{%-else%}" GPT_OSS_FINAL "'<|end|>'}}"
      "{%-setlast_tool_call.name=none%}{%-endif%}{%-elifmessage.role=='tool'-%}",
      "{%-elifmessage.role=='user'-%}{{-'<|start|>user<|message|>'+message.content+'<|end|>'}}"
      "{%-endif-%}{%-endfor-%}{%-ifadd_generation_prompt-%}<|start|>assistant{%-endif-%}"}},
    {SPECBATCH_CHAT_DEEPSEEK_R1,
     {R1_BEGIN,
      "{%-endif%}{%-ifmessage['role']=='assistant'andmessage['content']isnotnone%}"
      "{%-ifns.is_tool%}",
      R1_ANSWER, "{%-endif%}{%-endfor-%}{%ifns.is_tool%}",
      "{%endif%}{%ifadd_generation_promptandnotns.is_tool%}"
      "{{'" SB_R1_ASSISTANT "<think>\\n'}}{%endif%}"}},
    {SPECBATCH_CHAT_GLM4, {GLM_BEGIN, GLM_TURNS("", "content"), GLM_TOOL, GLM_END("")}},
    {SPECBATCH_CHAT_GLMZ1,
     {GLM_BEGIN,
      GLM_TURNS("{%-setvisible=content.split('</think>')[-1].strip()%}", "visible"), GLM_TOOL,
      GLM_END("\n<think>")}},
    {SPECBATCH_CHAT_GLM4_5,
     {GLM_BEGIN, GLM4_5_TEXT, GLM4_5_TURNS, "{%endif%}{%-elifm.role=='tool'-%}", GLM4_5_END}},
    {SPECBATCH_CHAT_PHI3, {PHI3_TURNS("message['role']=='system'")}},
    {SPECBATCH_CHAT_PHI3_5, {PHI3_TURNS("message['role']=='system'andmessage['content']")}},
    {SPECBATCH_CHAT_PHI4,
     {"{%formessageinmessages%}{%if" PHI4_TURN("system") "{%elif" PHI4_TURN("user")
      "{%elif" PHI4_TURN("assistant") "{%endif%}{%endfor%}{%ifadd_generation_prompt%}"
      "{{'<|im_start|>assistant<|im_sep|>'}}{%endif%}"}},
    {SPECBATCH_CHAT_GEMMA2,
     {"{{bos_token}}{%ifmessages[0]['role']=='system'%}"
      "{{raise_exception('System role not supported')}}{%endif%}{%formessageinmessages%}"
      "{%if" IS_OUT_OF_TURN "%}{{raise_exception(" GEMMA_ALTERNATE ")}}{%endif%}" GEMMA_ROLE("")
      "{{'<start_of_turn>'+role+'\\n'+message['content']|trim+'<end_of_turn>\\n'}}{%endfor%}"
      "{%ifadd_generation_prompt%}{{'<start_of_turn>model\\n'}}{%endif%}"}},
    {SPECBATCH_CHAT_GEMMA3, /* what it does with images is left out */
     {"{{bos_token}}{%-ifmessages[0]['role']=='system'-%}"
      "{%-ifmessages[0]['content']isstring-%}"
      "{%-setfirst_user_prefix=messages[0]['content']+'\\n\\n'-%}{%-else-%}",
      "{%-endif-%}{%-setloop_messages=messages[1:]-%}{%-else-%}{%-setfirst_user_prefix=''-%}"
      "{%-setloop_messages=messages-%}{%-endif-%}{%-formessageinloop_messages-%}"
      "{%-if" IS_OUT_OF_TURN "-%}{{raise_exception(" GEMMA_ALTERNATE ")}}{%-endif-%}"
      GEMMA_ROLE("-")
      "{{'<start_of_turn>'+role+'\\n'+(first_user_prefixifloop.firstelse'')}}"
      "{%-ifmessage['content']isstring-%}{{message['content']|trim}}"
      "{%-elifmessage['content']isiterable-%}",
      "{%-else-%}{{raise_exception('Invalid content type')}}{%-endif-%}"
      "{{'<end_of_turn>\\n'}}{%-endfor-%}"
      "{%-ifadd_generation_prompt-%}{{'<start_of_turn>model\\n'}}{%-endif-%}"}},
    {SPECBATCH_CHAT_MISTRAL_V1,
     {MISTRAL_SYSTEM "{{-bos_token}}{%-formessageinloop_messages%}{%-if" IS_OUT_OF_TURN "%}"
      MISTRAL_ALTERNATE "{%-ifmessage['role']=='user'%}"
      MISTRAL_USER("loop.first", " [INST] ", " [/INST]")
      "{%-elifmessage['role']=='assistant'%}{{-' '+message['content']+eos_token}}" MISTRAL_END}},
    {SPECBATCH_CHAT_MISTRAL_V3,
     {MISTRAL_V3_BEGIN(MISTRAL_V3_CHECK),
      "{%-endif%}" MISTRAL_USER("loop.last", "[INST] ", "[/INST]") "{%-elif" MISTRAL_CALLS "%}",
      MISTRAL_V3_ANSWER("' '+message['content']|trim"), MISTRAL_END}},
    {SPECBATCH_CHAT_MISTRAL_V3_TEKKEN,
     {MISTRAL_V3_BEGIN(MISTRAL_V3_CHECK),
      "{%-endif%}" MISTRAL_USER("loop.last", "[INST]", "[/INST]") "{%-elif(" MISTRAL_CALLS ")%}",
      MISTRAL_V3_ANSWER("message['content']"), MISTRAL_END}},
    {SPECBATCH_CHAT_MISTRAL_V3_TEKKEN, /* the first revision */
     {MISTRAL_V3_BEGIN(MISTRAL_V3_OLD_CHECK),
      "{%-endif%}" MISTRAL_USER("loop.last", "[INST]", "[/INST]")
      "{%-elifmessage['role']=='tool_calls'ormessage.tool_callsisdefined%}",
      MISTRAL_V3_ANSWER("message['content']"), MISTRAL_END}},
    {SPECBATCH_CHAT_MISTRAL_V7,
     {"{{bos_token}}{%formessageinmessages%}{%ifmessage['role']=='user'%}"
      "{{'[INST] '+message['content']+'[/INST]'}}{%elifmessage['role']=='system'%}"
      "{{'[SYSTEM_PROMPT] '+message['content']+'[/SYSTEM_PROMPT]'}}"
      "{%elifmessage['role']=='assistant'%}{{' '+message['content']+eos_token}}{%else%}"
      "{{raise_exception('Only user, system and assistant roles are supported!')}}"
      "{%endif%}{%endfor%}"}},
    {SPECBATCH_CHAT_PHI4_MINI,
     {"{%formessageinmessages%}"
      "{%ifmessage['role']=='system'and'tools'inmessageandmessage['tools']isnotnone%}",
      "{%else%}{{'<|'+message['role']+'|>'+message['content']+'<|end|>'}}{%endif%}{%endfor%}"
      "{%ifadd_generation_prompt%}{{'<|assistant|>'}}{%else%}{{eos_token}}{%endif%}"}},
};
/* clang-format on */

/* ------------------------------------------------------------------------- spelling */

static int is_jinja_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Appends a string of a template's program, which begins at its quote, and returns its length. */
static size_t spell_string(const char *text, size_t n, struct sb_bytes *out, int32_t *rc)
{
    size_t at = 1;

    *rc = sb_bytes_add(out, "'", 1);
    for (; *rc == SPECBATCH_OK && at < n && text[at] != text[0]; at++) {
        if (text[at] == '\\' && at + 1 < n)
            *rc = sb_bytes_add(out, &text[at++], 1);
        *rc = *rc                ? *rc
              : text[at] == '\n' ? sb_bytes_add(out, "\\n", 2)
                                 : sb_bytes_add(out, &text[at], 1);
    }
    if (*rc == SPECBATCH_OK)
        *rc = sb_bytes_add(out, "'", 1);
    return at < n ? at + 1 : n;
}

/* The length of the comment at the beginning of a text. */
static size_t comment_length(const char *text, size_t n)
{
    size_t at = 4;

    while (at < n && !(text[at - 2] == '#' && text[at - 1] == '}'))
        at++;
    return at < n ? at : n;
}

/* What a minus takes away: blanks at the end of `out`, but for its first `keep` bytes, which are
 * before a comment. */
static void drop_blanks(struct sb_bytes *out, size_t keep)
{
    while (out->n > keep && is_jinja_blank(out->data[out->n - 1]))
        out->n--;
}

static size_t count_blanks(const char *text, size_t at, size_t n)
{
    const size_t begin = at;

    while (at < n && is_jinja_blank(text[at]))
        at++;
    return at - begin;
}

/* Leaves a comment out, and the blanks that its minus signs take away. Returns how many bytes of
 * the text that was. */
static size_t skip_comment(const char *text, size_t at, size_t n, struct sb_bytes *out,
                           size_t *keep)
{
    const size_t length = comment_length(text + at, n - at);

    if (length > 2 && text[at + 2] == '-')
        drop_blanks(out, *keep);
    *keep = out->n;
    return length +
           (length > 5 && text[at + length - 3] == '-' ? count_blanks(text, at + length, n) : 0);
}

/* Appends what opens or closes a part that Jinja runs: {{ {% }} %}. A minus inside it takes the
 * blanks outside away. Returns how many bytes of the text that was. */
static size_t spell_delimiter(const char *text, size_t at, size_t n, struct sb_bytes *out,
                              size_t keep, int32_t *rc)
{
    const int opens = text[at] == '{';

    if (opens && at + 2 < n && text[at + 2] == '-')
        drop_blanks(out, keep);
    *rc = sb_bytes_add(out, text + at, 2);
    return 2 + (!opens && text[at - 1] == '-' ? count_blanks(text, at + 2, n) : 0);
}

/* Appends a template in the spelling of the list. */
static int32_t spell(const char *text, size_t n, struct sb_bytes *out)
{
    int32_t rc = SPECBATCH_OK;
    int inside = 0; /* in {{ }} or {% %} */
    size_t at = 0, keep = 0;

    while (at < n && rc == SPECBATCH_OK) {
        const char c = text[at], next = at + 1 < n ? text[at + 1] : '\0';
        if (!inside && c == '{' && next == '#') {
            at += skip_comment(text, at, n, out, &keep);
        } else if (inside && (c == '\'' || c == '"')) {
            at += spell_string(text + at, n - at, out, &rc);
        } else if (inside ? (c == '}' || c == '%') && next == '}'
                          : c == '{' && (next == '{' || next == '%')) {
            at += spell_delimiter(text, at, n, out, keep, &rc);
            inside = !inside;
        } else {
            if (!inside || !is_jinja_blank(c))
                rc = sb_bytes_add(out, &c, 1);
            at++;
        }
    }
    return rc;
}

/* ----------------------------------------------------------------------- recognising */

/* How deep the statement that begins here brings what follows: 1 for one that has an end, -1 for an
 * end, 0 for others. *splits: whether it is an else or elif. */
static int depth_of(const char *statement, int *splits)
{
    const char *word = statement + 2 + (statement[2] == '-');

    *splits = strncmp(word, "el", 2) == 0;
    return strncmp(word, "end", 3) == 0 ? -1
           : strncmp(word, "if", 2) == 0 || strncmp(word, "for", 3) == 0 ||
                   strncmp(word, "macro", 5) == 0
               ? 1
               : 0;
}

/* Where a branch that begins at `at` ends and is followed by `piece`; NULL if something else
 * follows it. */
static const char *behind_branch(const char *at, const char *piece)
{
    int depth = 0, splits = 0;

    for (; *at; at++) {
        if (depth == 0 && strncmp(at, piece, strlen(piece)) == 0)
            return at + strlen(piece);
        if (at[0] != '{' || at[1] != '%')
            continue;
        depth += depth_of(at, &splits);
        if (depth < 0 || (depth == 0 && splits))
            return NULL;
    }
    return NULL;
}

/* Whether a template is a line of the list, but for a default of its argument and a last newline,
 * which Jinja drops. */
static int is_known(const struct known *line, const char *spelled)
{
    static const char argument[] =
        "{%ifnotadd_generation_promptisdefined%}{%setadd_generation_prompt=false%}{%endif%}";
    const char *const first = line->pieces[0];

    if (strncmp(spelled, argument, sizeof argument - 1) == 0)
        spelled += sizeof argument - 1;
    if (strncmp(spelled, first, strlen(first)) != 0)
        return 0;
    spelled += strlen(first);
    for (size_t i = 1; i < PIECES_MAX && line->pieces[i] && spelled; i++)
        spelled = behind_branch(spelled, line->pieces[i]);
    return spelled && (spelled[0] == '\0' || strcmp(spelled, "\n") == 0);
}

int32_t sb_chat_recognise(int32_t *format, const struct sb_mem *mem, const char *jinja, size_t n)
{
    struct sb_bytes spelled = {.mem = mem};
    int32_t rc = SPECBATCH_OK;

    *format = SB_CHAT_UNKNOWN;
    SB_TRY(sb_bytes_add(&spelled, "", 0));
    if (n > TEMPLATE_MAX)
        goto done;
    SB_TRY(spell(jinja, n, &spelled));
    for (size_t i = 0; i < sizeof known / sizeof *known && *format == SB_CHAT_UNKNOWN; i++)
        if (is_known(&known[i], spelled.data))
            *format = known[i].format;
done:
    sb_bytes_clear(&spelled);
    return rc;
}

/* The template in tokenizer_config.json: a string, or of a list of named ones the default. */
static const char *config_template(const struct sb_json_node *root, size_t *n)
{
    const struct sb_json_node *node = sb_json_get(root, "chat_template");

    if (sb_json_kind(node) != SB_JSON_ARRAY)
        return sb_json_string(node, n);
    for (node = sb_json_first(node); node; node = sb_json_next(node)) {
        const char *name = sb_json_word(sb_json_get(node, "name"));
        if (name && strcmp(name, "default") == 0)
            return sb_json_string(sb_json_get(node, "template"), n);
    }
    return NULL;
}

/* Copies the template in a directory's tokenizer_config.json, if there is one. */
static int32_t copy_config_template(char **out, size_t *n, const struct sb_mem *mem,
                                    const char *dir)
{
    char path[1024];
    struct sb_json *doc = NULL;
    const char *found;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_file_join(path, dir, "tokenizer_config.json"));
    rc = sb_json_load(&doc, mem, path, CONFIG_MAX);
    if (rc == SPECBATCH_E_NOT_FOUND)
        rc = SPECBATCH_OK;
    if (rc != SPECBATCH_OK || !doc || (found = config_template(sb_json_root(doc), n)) == NULL)
        goto done;
    SB_NEW(*out, sb_alloc_raw(mem, *n + 1, 1), "the chat template");
    memcpy(*out, found, *n + 1);
done:
    sb_json_free(doc);
    return rc;
}

int32_t sb_chat_template(char **out, size_t *n, const struct sb_mem *mem, const char *dir)
{
    char path[1024];
    int32_t rc = SPECBATCH_OK;

    *out = NULL;
    *n = 0;
    SB_TRY(sb_file_join(path, dir, "chat_template.jinja"));
    rc = sb_file_load(out, n, mem, path, TEMPLATE_MAX);
    if (rc == SPECBATCH_E_NOT_FOUND)
        rc = copy_config_template(out, n, mem, dir);
done:
    return rc;
}

int32_t sb_chat_detect(int32_t *format, const struct sb_mem *mem, const char *dir)
{
    char *text = NULL;
    size_t n;
    int32_t rc = SPECBATCH_OK;

    *format = SB_CHAT_NONE;
    SB_TRY(sb_chat_template(&text, &n, mem, dir));
    if (text)
        SB_TRY(sb_chat_recognise(format, mem, text, n));
done:
    sb_free(mem, text);
    return rc;
}
