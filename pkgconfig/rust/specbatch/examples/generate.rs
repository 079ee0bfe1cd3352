//! Answers a prompt with a draft model, and proves that the answer is that of plain decoding.
//!
//!     cargo run --release --example generate TARGET DRAFT PROMPT [MAX_NEW]

use specbatch::{audit, Draft, Model, Pool, PoolOptions, Request, Sampling};
use std::env;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (target, draft, prompt) = match arguments.as_slice() {
        [target, draft, prompt, ..] => (target, draft, prompt.as_str()),
        _ => return Err("generate TARGET DRAFT PROMPT [MAX_NEW]".into()),
    };
    let max_new = arguments.get(3).map_or(Ok(64), |max_new| max_new.parse())?;

    let target = Model::open(target)?;
    let draft = Draft::from_model(&Model::open(draft)?)?;
    let options = PoolOptions::new();
    let mut pool = Pool::new(&target, Some(&draft), &options)?;
    let sampling = Sampling::new().temperature(0.8).top_p(0.95).seed(1);
    let request = Request::text(prompt, max_new).sampling(sampling).logprobs(true);
    pool.submit(&request)?;
    pool.run()?;

    let result = pool.collect()?.ok_or("there is no result")?;
    println!("{}{}", prompt, result.text().unwrap_or_default());
    println!(
        "{} tokens in {} passes, {} of {} proposals accepted, ended by {}",
        result.tokens().len(),
        result.rounds(),
        result.accepted(),
        result.drafted(),
        result.finish()
    );
    let report = audit(&target, &options, &request, &result)?;
    println!("equal to plain decoding: {}", report.equal);
    Ok(())
}
