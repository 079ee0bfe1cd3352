//! Whatever proposes, and in whatever order: results are those of plain decoding, bit for bit.

mod common;

use common::{model, random_pair, same, PROMPTS};
use specbatch::*;
use std::sync::Arc;
use std::thread;

/// The results of some requests by a pool, in the order of their submission.
fn decode(pool: &mut Pool, requests: &[Request]) -> Result<Vec<Finished>> {
    for request in requests {
        pool.submit(request)?;
    }
    pool.run()?;
    let mut results = pool.results().collect::<Result<Vec<_>>>()?;
    results.sort_by_key(Finished::id);
    Ok(results)
}

/// Requests with most of what a request can have.
fn requests(vocab: i32) -> Vec<Request<'static>> {
    let sampling = Sampling::new().temperature(0.9).top_k(50).top_p(0.95).seed(7);
    let bias = vec![(3, 1.5), (5, f32::NEG_INFINITY)];
    let base = |start: i32, n| Request::ids((start..start + n).collect::<Vec<_>>(), 24);
    vec![
        base(1, 5).ignore_eos(true).logprobs(true).top_logprobs(3),
        base(7, 40).sampling(sampling.clone()).logprobs(true).prompt_logprobs(true),
        base(2, 9).sampling(sampling.min_p(0.02).bias(bias)).filtered_logprobs(true).logprobs(true),
        base(vocab - 6, 4).stop_ids(vec![1, 2, 3]).min_new(4).priority(3).draft_len(2),
    ]
}

#[test]
fn any_policy_and_draft_have_the_bits_of_plain_decoding() -> Result<()> {
    let (target, small) = random_pair()?;
    let requests = requests(target.vocab_size());
    let plain = PoolOptions::new().policy(Policy::PLAIN).batch(1).n_threads(1);
    let want = decode(&mut Pool::new(&target, None, &plain)?, &requests)?;
    let ngrams = Draft::from_ngrams(NgramOptions::new().max_match(4).min_match(1))?;
    let drafts =
        [Draft::from_model(&small)?, Draft::from_list(&[&ngrams, &Draft::from_model(&small)?])?];
    for policy in Policy::all() {
        for draft in &drafts {
            let options = PoolOptions::new().policy(policy).batch(3).n_threads(2).fixed_k(true);
            let got = decode(&mut Pool::new(&target, Some(draft), &options)?, &requests)?;
            assert_eq!(got.len(), requests.len());
            for (want, got) in want.iter().zip(&got) {
                same(want, got);
            }
        }
    }
    Ok(())
}

#[test]
fn an_audit_finds_results_equal_and_refuses_another_request() -> Result<()> {
    let (target, small) = random_pair()?;
    let options = PoolOptions::new();
    let draft = Draft::from_model(&small)?;
    let requests = requests(target.vocab_size());
    let results = decode(&mut Pool::new(&target, Some(&draft), &options)?, &requests)?;
    let report = audit(&target, &options, &requests[1], &results[1])?;
    assert!(report.equal && report.first_divergence.is_none());
    assert_eq!(report.n_tokens, results[1].tokens().len() as u64);
    let error = audit(&target, &options, &requests[0], &results[1]).unwrap_err();
    assert_eq!(error.status(), Status::INVALID);
    Ok(())
}

#[test]
fn alternatives_have_a_slice_for_each_token() -> Result<()> {
    let (target, _) = random_pair()?;
    let mut pool = Pool::new(&target, None, &PoolOptions::new())?;
    let request = Request::ids(&[1, 2, 3][..], 6).ignore_eos(true).logprobs(true).top_logprobs(2);
    let result = decode(&mut pool, &[request.prompt_logprobs(true)])?.remove(0);
    assert_eq!(result.alternatives().unwrap().iter().count(), 6);
    assert_eq!(result.prompt_alternatives().unwrap().iter().count(), 2);
    assert_eq!(result.prompt(), [1, 2, 3]);
    for (i, (ids, logprobs)) in result.alternatives().unwrap().iter().enumerate() {
        assert_eq!((ids.len(), logprobs.len()), (2, 2));
        assert_eq!(ids[0], result.tokens()[i], "greedy tokens are the most probable ones");
        assert_eq!(logprobs[0].to_bits(), result.logprobs().unwrap()[i].to_bits());
    }
    Ok(())
}

#[test]
fn three_streams_at_once_have_the_known_answers() -> Result<()> {
    let draft = Draft::from_ngrams(NgramOptions::new())?;
    for policy in [Policy::PLAIN, Policy::RAGGED] {
        let options = PoolOptions::new().policy(policy).fixed_k(true);
        let mut pool = Pool::new(&model()?, Some(&draft), &options)?;
        for (i, (prompt, _)) in PROMPTS.iter().enumerate() {
            pool.submit(&Request::text(*prompt, 200).user(i))?;
        }
        let (mut texts, mut ids) = (vec![String::new(); 3], vec![Vec::new(); 3]);
        let mut order = Vec::new();
        while pool.step()? > 0 || order.is_empty() {
            while let Some(event) = pool.next_event()? {
                texts[event.user] += event.text.as_ref().unwrap();
                ids[event.user].extend_from_slice(&event.ids);
                order.push(event.user);
            }
        }
        for event in pool.events() {
            let event = event?;
            texts[event.user] += &event.text.unwrap();
            ids[event.user].extend_from_slice(&event.ids);
        }
        order.dedup();
        assert!(order.len() > 3, "the answers come one after the other");
        for result in pool.results() {
            let result = result?;
            assert_eq!(result.finish(), Finish::EOS);
            assert_eq!(texts[result.user()], PROMPTS[result.user()].1);
            assert_eq!(result.text(), Some(PROMPTS[result.user()].1));
            assert_eq!(ids[result.user()], result.tokens());
        }
        assert!(pool.stat("rounds")? > 0);
    }
    Ok(())
}

#[test]
fn one_model_and_draft_serve_two_threads_and_a_pool_may_move() -> Result<()> {
    let (target, small) = random_pair()?;
    let draft = Draft::from_model(&small)?;
    let requests = Arc::new(requests(target.vocab_size()));
    let want = decode(&mut Pool::new(&target, None, &PoolOptions::new())?, &requests)?;
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (requests, options) = (requests.clone(), PoolOptions::new().n_threads(1));
            let mut pool = Pool::new(&target, Some(&draft), &options).unwrap();
            thread::spawn(move || decode(&mut pool, &requests).unwrap())
        })
        .collect();
    drop((target, small, draft));
    for thread in threads {
        for (want, got) in want.iter().zip(&thread.join().unwrap()) {
            same(want, got);
        }
    }
    Ok(())
}
