//! Events: what requests have got since they were last asked.

use crate::{Finish, Pool, RequestId, Result, Status, Token};
use std::borrow::Cow;

/// What a request has got since its last event.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The number of the request.
    pub id: RequestId,
    /// The request's `user`.
    pub user: usize,
    /// The new tokens: none come twice, and none are left out.
    pub ids: Cow<'a, [Token]>,
    /// The text that they complete, never half a character. None: the model has no tokenizer.
    pub text: Option<Cow<'a, str>>,
    /// How it ended, in its last event.
    pub finish: Option<Finish>,
    /// `OK`, or the error that ended it.
    pub status: Status,
}

impl Event<'_> {
    /// The event with copies of what it borrows from the pool.
    pub fn into_owned(self) -> Event<'static> {
        Event {
            id: self.id,
            user: self.user,
            ids: Cow::Owned(self.ids.into_owned()),
            text: self.text.map(|text| Cow::Owned(text.into_owned())),
            finish: self.finish,
            status: self.status,
        }
    }
}

/// The events of a pool that there are now. See [`Pool::events`].
#[derive(Debug)]
pub struct Events<'a> {
    pub(crate) pool: Option<&'a mut Pool>,
}

impl Iterator for Events<'_> {
    type Item = Result<Event<'static>>;

    fn next(&mut self) -> Option<Result<Event<'static>>> {
        let next = self.pool.as_mut()?.next_event().transpose();
        let next = next.map(|event| event.map(Event::into_owned));
        if !matches!(next, Some(Ok(_))) {
            self.pool = None; // an error is told once
        }
        next
    }
}
