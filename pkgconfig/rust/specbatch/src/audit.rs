//! The proof of a result: its request decoded once more, plainly.

use crate::{call, sys, Finished, Model, PoolOptions, Request, Result, Token};

/// What [`audit`] has found.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct AuditReport {
    /// Tokens, log-probabilities and alternatives are equal, bit for bit.
    pub equal: bool,
    /// The index of the first token that differs, or whose numbers do.
    pub first_divergence: Option<usize>,
    /// Plain decoding's id there, if it had not ended.
    pub token_expected: Option<Token>,
    /// The result's id there, if it had not ended.
    pub token_got: Option<Token>,
    /// Plain decoding's largest logit minus its second largest, there.
    pub margin: f32,
    /// Tokens that were compared.
    pub n_tokens: u64,
}

/// Decodes a finished request once more, on the target alone, at batch 1 and without speculation,
/// and compares. `request` must be the request as it was submitted. A difference is no error.
///
/// # Errors
/// `INVALID` (another model or request), and what [`Pool::new`](crate::Pool::new) and
/// [`Pool::submit`](crate::Pool::submit) have.
pub fn audit(
    target: &Model,
    options: &PoolOptions,
    request: &Request<'_>,
    result: &Finished,
) -> Result<AuditReport> {
    let mut report = sys::specbatch_audit_report::default();
    request.with_raw(|request| {
        let (options, _hooks) = options.raw();
        // SAFETY: all of these are alive during the call, and so are the hooks.
        call::checked(unsafe {
            sys::specbatch_audit(target.raw(), &options, request, result.raw(), &mut report)
        })
    })?;
    let id = |id: Token| (report.first_divergence >= 0 && id >= 0).then_some(id);
    Ok(AuditReport {
        equal: report.equal == 1,
        first_divergence: usize::try_from(report.first_divergence).ok(),
        token_expected: id(report.token_expected),
        token_got: id(report.token_got),
        margin: report.margin,
        n_tokens: report.n_tokens,
    })
}
