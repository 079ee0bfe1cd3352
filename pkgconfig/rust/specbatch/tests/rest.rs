//! Everything else that the crate offers, and that errors say what they should.

mod common;

use common::{folder, model, path, random_pair, PROMPTS};
use specbatch::*;
use std::time::Duration;

#[test]
fn errors_have_a_status_and_a_line() {
    let error = Model::open("/nowhere").unwrap_err();
    assert_eq!(error.status(), Status::IO);
    assert!(error.line().contains("/nowhere"), "{error}");
    assert_eq!(error.to_string(), format!("SPECBATCH_E_IO: {}", error.line()));
    assert_eq!(Model::open("a\0b").unwrap_err().status(), Status::INVALID);
    assert!(Status::DEVICE.is_fatal() && !Status::IO.is_fatal());
}

#[test]
fn names_and_versions_are_those_of_the_library() -> Result<()> {
    assert_eq!(version() / 100, 2);
    assert!(version_string().starts_with("0.2."));
    assert_eq!(abi_version(), 1);
    assert!(has("cpu") && !has("a\0b") && !has("tea"));
    assert_eq!(Policy::by_name("exspec")?, Policy::EXSPEC);
    assert_eq!(Policy::all().map(Policy::name).next(), Some("ragged"));
    assert_eq!(Policy::by_name("best").unwrap_err().status(), Status::NOT_FOUND);
    assert_eq!(ChatFormat::by_name("qwen3")?.name(), "qwen3");
    assert_eq!(ChatFormat::all().count(), 25);
    assert_eq!(Finish::LENGTH.to_string(), "length");
    Ok(())
}

#[test]
fn a_model_says_what_it_is() -> Result<()> {
    let model = model()?;
    assert!(model.has_tokenizer() && model.vocab_size() > 0 && model.layers() > 0);
    assert!(model.context() > 0 && model.bytes() > 0 && !model.arch().is_empty());
    assert_eq!((model.dtype(), model.digest().len(), model.eos().len()), ("bf16", 32, 1));
    let long = Model::open_with(path("emoji"), &ModelOptions::new().weights(Weights::Q8))?;
    assert_ne!(model.fingerprint(), long.fingerprint());
    assert_eq!(model.digest(), long.clone().digest());
    Ok(())
}

#[test]
fn text_becomes_tokens_and_text_again() -> Result<()> {
    let model = model()?;
    for text in ["", "flag", PROMPTS[1].0, &"👨‍👩‍👦".repeat(99)] {
        let ids = model.tokenize(text, TextFlags::NO_BOS | TextFlags::PLAIN_SPECIAL)?;
        assert_eq!(model.detokenize(&ids, TextFlags::KEEP_SPECIAL)?, text);
    }
    assert!(!model.token_text(model.eos()[0])?.is_empty());
    assert_eq!(model.token_text(-1).unwrap_err().status(), Status::TOKEN);
    let half = model.tokenize("😀", TextFlags::NONE)?;
    let mut stream = TextStream::new(&model, TextFlags::NONE)?;
    assert_eq!(stream.push(&half[..1])?, "");
    assert_eq!(stream.finish()?, "\u{fffd}");
    let (target, _) = random_pair()?;
    assert_eq!(target.tokenize("", TextFlags::NONE).unwrap_err().status(), Status::NO_TOKENIZER);
    Ok(())
}

#[test]
fn conversations_are_formatted() -> Result<()> {
    let messages =
        [Message { role: "user", content: "Hi" }, Message { role: "assistant", content: "" }];
    let options = ChatOptions::new().format(ChatFormat::CHATML).flags(ChatFlags::NO_ANSWER_PROMPT);
    let text = options.text(&messages)?;
    assert_eq!(text, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n");
    let model = model()?;
    let raw = ChatOptions::new().format(ChatFormat::RAW);
    assert_eq!(model.chat_text(&messages, &raw)?, "Hi");
    let today = ChatOptions::new().format(ChatFormat::GPT_OSS).date(20_261_129).effort(Effort::LOW);
    assert!(today.text(&messages)?.contains("Current date: 2026-11-29\n\nReasoning: low\n"));
    let messages = [Message { role: "user", content: PROMPTS[1].0 }];
    let ids = model.chat_tokens(&messages, &raw)?;
    assert_eq!(ids, model.tokenize(PROMPTS[1].0, TextFlags::NONE)?);
    assert_eq!(model.chat_format().unwrap_err().status(), Status::NOT_FOUND);
    let nobody = [Message { role: "nobody", content: "" }];
    assert_eq!(options.text(&nobody).unwrap_err().status(), Status::INVALID);
    Ok(())
}

#[test]
fn requests_end_by_strings_deadlines_and_cancelling() -> Result<()> {
    let model = model()?;
    let mut pool = Pool::new(&model, None, &PoolOptions::new().batch(1).queue_max(4))?;
    for wrong in [Request::text("", 1), Request::ids(vec![], 1), Request::text("a", 1).stops([""])]
    {
        assert_eq!(pool.submit(&wrong).unwrap_err().status(), Status::INVALID);
    }
    pool.submit(&Request::text(PROMPTS[0].0, 50).stops(["nothing", " &"]))?;
    pool.submit(&Request::text(PROMPTS[0].0, 50).deadline(Duration::ZERO))?;
    let cancelled = pool.submit(&Request::text(PROMPTS[0].0.to_string(), 50).answers(2))?;
    assert_eq!(pool.submit(&Request::text("flag", 1)).unwrap_err().status(), Status::QUEUE_FULL);
    pool.cancel(cancelled)?;
    pool.run()?;
    assert_eq!(pool.state(1)?.state, State::FINISHED);
    let mut results = pool.results().collect::<Result<Vec<_>>>()?;
    results.sort_by_key(Finished::id);
    let ends: Vec<_> = results.iter().map(Finished::finish).collect();
    assert_eq!(ends, [Finish::STOP, Finish::DEADLINE, Finish::CANCELLED, Finish::EOS]);
    assert_eq!(results[0].text(), Some(" 😀, 😂"));
    assert_eq!(results[3].answer(), 1);
    assert_eq!(results[3].fingerprint(), model.fingerprint());
    assert!(results[3].time_total() >= results[3].time_first_token().unwrap());
    assert!(results[3].rounds() > 0 && results[3].drafted() == results[3].accepted());
    assert!(results[3].time_queued() > Duration::ZERO && results[3].status() == Status::OK);
    assert_eq!(pool.state(1).unwrap_err().status(), Status::NOT_FOUND);
    Ok(())
}

#[test]
fn polls_bring_each_token_once() -> Result<()> {
    let mut pool = Pool::new(&model()?, None, &PoolOptions::new())?;
    let id = pool.submit(&Request::text(PROMPTS[1].0, 50))?;
    let (mut polled, mut some) = (Vec::new(), [0; 2]);
    let mut active = 1;
    while active > 0 || pool.waiting(id)? > 0 {
        active = pool.step()?;
        let n = pool.poll(id, &mut some)?;
        polled.extend_from_slice(&some[..n]);
    }
    assert_eq!(polled, pool.collect()?.unwrap().tokens());
    Ok(())
}

#[test]
fn pins_and_sessions_keep_prompts() -> Result<()> {
    let (target, _) = random_pair()?;
    let options = PoolOptions::new().prefix_bytes(1 << 20);
    assert!(Pool::bytes(&target, None, &options)? > 1 << 20);
    let mut pool = Pool::new(&target, None, &options)?;
    let ids: Vec<Token> = (1..81).collect();
    let pin = pool.pin(&ids[..64])?;
    pool.submit(&Request::ids(&ids, 4))?;
    pool.run()?;
    pool.unpin(pin)?;
    assert_eq!(pool.unpin(pin).unwrap_err().status(), Status::NOT_FOUND);
    let file = folder("sessions").join("session");
    assert_eq!(pool.save_session(&ids, &file)?, 64);

    let mut other = Pool::new(&target, None, &options)?;
    assert_eq!(other.load_session(&file)?, ids);
    other.submit(&Request::ids(&ids, 4))?;
    other.run()?;
    let (want, got) = (pool.collect()?.unwrap(), other.collect()?.unwrap());
    common::same(&want, &got);
    assert!(other.stats().any(|counter| counter == ("prefix_tokens", 64)));
    assert_eq!(other.stat("no such").unwrap_err().status(), Status::NOT_FOUND);
    Ok(())
}

#[test]
fn tables_and_converted_checkpoints_are_used() -> Result<()> {
    let folder = folder("files");
    let model = model()?;
    let text =
        PROMPTS.iter().map(|(prompt, answer)| format!("{prompt}{answer}")).collect::<String>();
    let ids = model.tokenize(&text.repeat(3), TextFlags::NONE)?;
    make_table(folder.join("table"), &model, &ids, TableOptions::new().max_match(3))?;
    let draft = Draft::from_table(folder.join("table"))?;
    let mut pool = Pool::new(&model, Some(&draft), &PoolOptions::new().fixed_k(true))?;
    pool.submit(&Request::text(PROMPTS[0].0, 50))?;
    pool.run()?;
    let want = pool.collect()?.unwrap();
    assert_eq!(want.text(), Some(PROMPTS[0].1));
    assert!(want.accepted() > 0);

    convert(folder.join("emoji.gguf"), path("emoji"), &ModelOptions::new())?;
    let converted = Model::open(folder.join("emoji.gguf"))?;
    let mut pool = Pool::new(&converted, None, &PoolOptions::new())?;
    pool.submit(&Request::text(PROMPTS[0].0, 50))?;
    pool.run()?;
    common::same(&want, &pool.collect()?.unwrap());
    assert_eq!(Draft::from_table("/nowhere").unwrap_err().status(), Status::IO);
    Ok(())
}

#[test]
fn objects_may_be_dropped_in_any_order() -> Result<()> {
    // Each of the 24 orders of four objects.
    for order in 0..24 {
        let model = model()?;
        let draft = Draft::from_model(&model)?;
        let mut pool = Pool::new(&model, Some(&draft), &PoolOptions::new())?;
        let stream = TextStream::new(&model, TextFlags::NONE)?;
        pool.submit(&Request::text(PROMPTS[2].0, 30))?;
        pool.run()?;
        let result = pool.collect()?.unwrap();
        pool.submit(&Request::text(PROMPTS[1].0, 30))?;
        pool.step()?;
        let mut objects: Vec<Box<dyn std::any::Any>> =
            vec![Box::new(model), Box::new(draft), Box::new(pool), Box::new(stream)];
        let mut rest = order;
        for left in (1..=objects.len()).rev() {
            drop(objects.remove(rest % left));
            rest /= left;
        }
        assert_eq!(result.text(), Some(PROMPTS[2].1));
    }
    Ok(())
}
