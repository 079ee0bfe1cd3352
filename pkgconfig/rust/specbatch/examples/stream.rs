//! Streams the answers to several prompts at once, decoded together.
//!
//!     cargo run --example stream MODEL PROMPT...
//!
//! prints a line "NUMBER> TEXT" for each piece of an answer when it comes, and "NUMBER= TEXT" with
//! the whole of it at its end.

use specbatch::{Draft, Model, NgramOptions, Pool, PoolOptions, Request};
use std::env;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let model = Model::open(arguments.next().ok_or("stream MODEL PROMPT...")?)?;
    let draft = Draft::from_ngrams(NgramOptions::new())?;
    let mut pool = Pool::new(&model, Some(&draft), &PoolOptions::new())?;
    for (number, prompt) in arguments.enumerate() {
        pool.submit(&Request::text(prompt, 200).user(number + 1))?;
    }
    let mut active = 1;
    while active > 0 {
        active = pool.step()?;
        for event in pool.events() {
            let event = event?;
            println!("{}> {}", event.user, event.text.ok_or("the model has no tokenizer")?);
        }
        for result in pool.results() {
            let result = result?;
            println!("{}= {}", result.user(), result.text().unwrap_or_default());
        }
    }
    Ok(())
}
