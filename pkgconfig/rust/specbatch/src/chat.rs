//! Conversations as the tokens or the text that a model was trained on.

use crate::call::{self, Raw};
use crate::{sys, Model, Result, Token};
use std::ffi::CString;
use std::mem::size_of;
use std::os::raw::c_char;
use std::ptr;

constants! {
    /// A chat format, by the models that were trained on it.
    ChatFormat {
        /// The model's own: see [`Model::chat_format`].
        AUTO = SPECBATCH_CHAT_AUTO,
        /// The contents, one after the other.
        RAW = SPECBATCH_CHAT_RAW,
        /// Vicuna 1.1 and later.
        VICUNA = SPECBATCH_CHAT_VICUNA,
        /// Qwen3.
        QWEN3 = SPECBATCH_CHAT_QWEN3,
        /// GLM-4-0414.
        GLM4 = SPECBATCH_CHAT_GLM4,
        /// GLM-Z1-0414.
        GLMZ1 = SPECBATCH_CHAT_GLMZ1,
        /// Llama 3, and not 3.1.
        LLAMA3 = SPECBATCH_CHAT_LLAMA3,
        /// ChatML without more.
        CHATML = SPECBATCH_CHAT_CHATML,
        /// Qwen2-Instruct.
        QWEN2 = SPECBATCH_CHAT_QWEN2,
        /// Qwen2.5-Instruct.
        QWEN2_5 = SPECBATCH_CHAT_QWEN2_5,
        /// Phi-3.
        PHI3 = SPECBATCH_CHAT_PHI3,
        /// Phi-3.5.
        PHI3_5 = SPECBATCH_CHAT_PHI3_5,
        /// Phi-4.
        PHI4 = SPECBATCH_CHAT_PHI4,
        /// Gemma and Gemma 2, which have no system message.
        GEMMA2 = SPECBATCH_CHAT_GEMMA2,
        /// Gemma 3.
        GEMMA3 = SPECBATCH_CHAT_GEMMA3,
        /// Mistral-7B-Instruct-v0.2.
        MISTRAL_V1 = SPECBATCH_CHAT_MISTRAL_V1,
        /// Mistral-7B-Instruct-v0.3 and Mistral-Large-Instruct-2407.
        MISTRAL_V3 = SPECBATCH_CHAT_MISTRAL_V3,
        /// Mistral-Nemo-Instruct-2407.
        MISTRAL_V3_TEKKEN = SPECBATCH_CHAT_MISTRAL_V3_TEKKEN,
        /// Mistral-Large-Instruct-2411.
        MISTRAL_V7 = SPECBATCH_CHAT_MISTRAL_V7,
        /// Phi-4-mini.
        PHI4_MINI = SPECBATCH_CHAT_PHI4_MINI,
        /// GLM-4.5, GLM-4.5-Air and GLM-4.6.
        GLM4_5 = SPECBATCH_CHAT_GLM4_5,
        /// Llama 3.1 and 3.3.
        LLAMA3_1 = SPECBATCH_CHAT_LLAMA3_1,
        /// Llama 3.2, which has the same text.
        LLAMA3_2 = SPECBATCH_CHAT_LLAMA3_2,
        /// gpt-oss: harmony, without tools.
        GPT_OSS = SPECBATCH_CHAT_GPT_OSS,
        /// DeepSeek-R1-Distill.
        DEEPSEEK_R1 = SPECBATCH_CHAT_DEEPSEEK_R1,
    }
}

named!(ChatFormat, specbatch_chat_count, specbatch_chat_name, specbatch_chat_by_name);

constants! {
    /// How long gpt-oss is to reason.
    Effort {
        /// What the template says by itself: medium.
        DEFAULT = SPECBATCH_EFFORT_DEFAULT,
        /// Little.
        LOW = SPECBATCH_EFFORT_LOW,
        /// As long as usual.
        MEDIUM = SPECBATCH_EFFORT_MEDIUM,
        /// Long.
        HIGH = SPECBATCH_EFFORT_HIGH,
    }
}

flags! {
    /// How a conversation is formatted.
    ChatFlags {
        /// Without reasoning, as a template's `enable_thinking=false` has it.
        NO_THINK = SPECBATCH_CHAT_NO_THINK,
        /// End behind the last message, without the mark that begins an answer.
        NO_ANSWER_PROMPT = SPECBATCH_CHAT_NO_ANSWER_PROMPT,
        /// Special tokens that are spelled out in a content become tokens; for trusted contents.
        PARSE_SPECIAL = SPECBATCH_CHAT_PARSE_SPECIAL,
    }
}

/// A message of a conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// "system", "user" or "assistant".
    pub role: &'a str,
    /// What is said.
    pub content: &'a str,
}

/// How a conversation becomes tokens or text.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChatOptions {
    raw: Raw<sys::specbatch_chat_options>,
}

impl ChatOptions {
    /// The model's own format, and no flags.
    pub fn new() -> ChatOptions {
        ChatOptions::default()
    }

    setters! {
        /// The format.
        constant format: ChatFormat,
        /// The flags.
        constant flags: ChatFlags,
        /// The day that it is, 20261129 for November 29, 2026, for formats that say it; 0: none.
        field date: i32,
        /// How long gpt-oss is to reason.
        constant effort: Effort,
    }

    /// Converts a conversation to text without a model, whose format must be given then.
    ///
    /// # Errors
    /// As [`Model::chat_text`]; `NOT_FOUND` for the format `AUTO`.
    pub fn text(&self, messages: &[Message<'_>]) -> Result<String> {
        text(ptr::null(), messages, self)
    }
}

impl Model {
    /// The format of the model's own chat template.
    ///
    /// # Errors
    /// `NOT_FOUND`: there is no template, or none that the library knows.
    pub fn chat_format(&self) -> Result<ChatFormat> {
        // SAFETY: the model is alive.
        call::checked(unsafe { sys::specbatch_model_chat_format(self.raw()) }).map(ChatFormat)
    }

    /// Converts a conversation to the ids of a request, up to where the assistant answers next.
    ///
    /// # Errors
    /// `INVALID` (no message, or an unknown role), `NOT_FOUND` (no such format, or the model's own
    /// is unknown), `OPTIONS`, `UNSUPPORTED`, `NO_TOKENIZER`, `NOMEM`.
    pub fn chat_tokens(
        &self,
        messages: &[Message<'_>],
        options: &ChatOptions,
    ) -> Result<Vec<Token>> {
        let list = List::new(messages)?;
        let (start, n_messages) = (list.raw.as_ptr(), list.raw.len());
        call::filled(list.guess / 2 + 32, 0, |ids, room, n| {
            // SAFETY: the messages live in `list`, and the buffer has the length that is given.
            unsafe {
                let (model, options) = (self.raw(), &options.raw.0);
                sys::specbatch_chat_tokens(model, options, start, SIZE, n_messages, ids, room, n)
            }
        })
    }

    /// The same as text, to be looked at: nothing in it tells a mark from a content that spells it.
    ///
    /// # Errors
    /// As [`Model::chat_tokens`], without `NO_TOKENIZER`.
    pub fn chat_text(&self, messages: &[Message<'_>], options: &ChatOptions) -> Result<String> {
        text(self.raw(), messages, options)
    }
}

const SIZE: usize = size_of::<sys::specbatch_message>();

/// Messages as C has them. Roles end in NUL there, contents have a length.
struct List {
    raw: Vec<sys::specbatch_message>,
    _roles: Vec<CString>,
    /// About how many bytes the whole text has.
    guess: usize,
}

impl List {
    fn new(messages: &[Message<'_>]) -> Result<List> {
        let mut list = List { raw: Vec::new(), _roles: Vec::new(), guess: 64 };
        for message in messages {
            let role = call::terminated(message.role.as_bytes())?;
            list.guess += message.content.len() + 32;
            list.raw.push(sys::specbatch_message {
                role: role.as_ptr(),
                content: message.content.as_ptr().cast(),
                content_length: message.content.len(),
            });
            list._roles.push(role);
        }
        Ok(list)
    }
}

fn text(
    model: *const sys::specbatch_model,
    messages: &[Message<'_>],
    options: &ChatOptions,
) -> Result<String> {
    let list = List::new(messages)?;
    let (start, n_messages) = (list.raw.as_ptr(), list.raw.len());
    call::filled_text(list.guess, |text: *mut c_char, room, n| {
        // SAFETY: as in `chat_tokens`; the model is NULL or alive.
        unsafe {
            let options = &options.raw.0;
            sys::specbatch_chat_text(model, options, start, SIZE, n_messages, text, room, n)
        }
    })
}
