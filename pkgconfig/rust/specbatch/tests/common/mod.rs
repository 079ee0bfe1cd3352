//! What the tests share: checkpoints of the source tree, and how results are compared.
#![allow(dead_code)] // each test uses some of it

use specbatch::{Finished, Model, Result};
use std::path::PathBuf;

/// Prompts of the model `emoji`, and its answers.
pub const PROMPTS: [(&str, &str); 3] = [
    ("smile 😀, 😂 & 🥳! smile", " 😀, 😂 & 🥳!"),
    ("family:👶 👨‍👩‍👦. family", ":👶 👨‍👩‍👧."),
    ("flag", " 🇫🇷⚡ 🚀?"),
];

pub fn path(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../../test/data/models", name].iter().collect()
}

/// An empty folder for one test.
pub fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

pub fn model() -> Result<Model> {
    Model::open(path("emoji"))
}

/// A target without a tokenizer, and its draft model, of random weights.
pub fn random_pair() -> Result<(Model, Model)> {
    let name = "qwen3_untied_f32_sharded";
    Ok((Model::open(path(name))?, Model::open(path(&format!("{name}.draft")))?))
}

type Bits = Option<Vec<u32>>;

fn bits(floats: Option<&[f32]>) -> Bits {
    floats.map(|floats| floats.iter().map(|float| float.to_bits()).collect())
}

fn top(result: &Finished) -> Option<Vec<(Vec<i32>, Bits)>> {
    let top = result.alternatives()?;
    Some(top.iter().map(|(ids, logprobs)| (ids.to_vec(), bits(Some(logprobs)))).collect())
}

/// Both have the same tokens and numbers, bit for bit, and there are some.
pub fn same(want: &Finished, got: &Finished) {
    assert!(!want.tokens().is_empty());
    assert_eq!(want.tokens(), got.tokens());
    assert_eq!(want.finish(), got.finish());
    assert_eq!(bits(want.logprobs()), bits(got.logprobs()));
    assert_eq!(bits(want.prompt_logprobs()), bits(got.prompt_logprobs()));
    assert_eq!(top(want), top(got));
}
