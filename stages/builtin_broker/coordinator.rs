//! All consumer groups, shared by the connections: who waits is woken when its reply is there.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use crate::api::code;
use crate::clock;
use crate::facts::{Counters, add};
use crate::group::{Group, Identity, JoinReply, JoinRequest, Reply, SyncReply, Ticket};
use crate::storage::partition::lock;

/// Groups with members or waiting members.
const GROUPS_MAX: usize = 10_000;
/// The timer thread looks at least this often, so that it notices the end of the broker.
const LONGEST_SLEEP_MS: u64 = 1_000;

#[derive(Default)]
struct Groups {
    by_id: HashMap<String, Group>,
    replies: HashMap<Ticket, Reply>,
    next_ticket: Ticket,
    timer_sleeps_until_ms: u64,
    stopped: bool,
}

/// The group coordinator.
pub(crate) struct Coordinator {
    groups: Mutex<Groups>,
    replied: Condvar,
    timer: Condvar,
    initial_delay_ms: u64,
    counters: Arc<Counters>,
}

impl Coordinator {
    pub fn new(initial_delay_ms: u64, counters: Arc<Counters>) -> Coordinator {
        let (groups, replied, timer) = (Mutex::default(), Condvar::new(), Condvar::new());
        Coordinator { groups, replied, timer, initial_delay_ms, counters }
    }

    /// Join and wait for the rebalance to complete.
    pub fn join(&self, group_id: &str, request: &JoinRequest) -> JoinReply {
        let refused = |error| JoinReply::refused(error, &request.member_id);
        match self.ask(group_id, true, |group, now_ms, ticket| group.join(now_ms, ticket, request)) {
            Ok(Reply::Join(reply)) => reply,
            Ok(Reply::Sync(_)) => refused(code::COORDINATOR_NOT_AVAILABLE),
            Err(error) => refused(error),
        }
    }

    /// Sync and wait for the leader's assignment.
    pub fn sync(
        &self,
        group_id: &str,
        who: Identity<'_>,
        generation: i32,
        assignments: &HashMap<String, Bytes>,
    ) -> SyncReply {
        match self.ask(group_id, false, |group, now, ticket| group.sync(now, ticket, who, generation, assignments)) {
            Ok(Reply::Sync(reply)) => reply,
            Ok(Reply::Join(_)) => SyncReply::refused(code::COORDINATOR_NOT_AVAILABLE),
            Err(error) => SyncReply::refused(error),
        }
    }

    pub fn heartbeat(&self, group_id: &str, who: Identity<'_>, generation: i32) -> i16 {
        let beat = |group: &mut Group, now_ms| group.heartbeat(now_ms, who, generation);
        self.tell(group_id, beat).unwrap_or(code::UNKNOWN_MEMBER_ID)
    }

    pub fn leave(&self, group_id: &str, who: Identity<'_>) -> i16 {
        self.tell(group_id, |group, now_ms| group.leave(now_ms, who)).unwrap_or(code::UNKNOWN_MEMBER_ID)
    }

    /// Run `store` if the commit is allowed, so that no rebalance comes in between. The error is the code to answer.
    pub fn commit(&self, group_id: &str, who: Identity<'_>, generation: i32, store: impl FnOnce()) -> Result<(), i16> {
        let mut groups = lock(&self.groups);
        let now_ms = clock::monotonic_ms();
        let answer = match groups.by_id.get_mut(group_id) {
            Some(group) => group.check_commit(now_ms, who, generation),
            None if generation < 0 => code::NONE,
            None => code::ILLEGAL_GENERATION,
        };
        if answer != code::NONE {
            return Err(answer);
        }
        store();
        Ok(())
    }

    fn tell(&self, group_id: &str, act: impl FnOnce(&mut Group, u64) -> i16) -> Option<i16> {
        let mut groups = lock(&self.groups);
        let now_ms = clock::monotonic_ms();
        let answer = act(groups.by_id.get_mut(group_id)?, now_ms);
        self.settle(&mut groups, group_id);
        Some(answer)
    }

    fn ask(&self, group_id: &str, create: bool, act: impl FnOnce(&mut Group, u64, Ticket)) -> Result<Reply, i16> {
        let mut groups = lock(&self.groups);
        if !groups.by_id.contains_key(group_id) {
            if !create || groups.stopped {
                return Err(code::UNKNOWN_MEMBER_ID);
            }
            if groups.by_id.len() >= GROUPS_MAX {
                return Err(code::COORDINATOR_NOT_AVAILABLE);
            }
            groups.by_id.insert(group_id.to_owned(), Group::new(self.initial_delay_ms));
        }
        let ticket = groups.next_ticket;
        groups.next_ticket += 1;
        if let Some(group) = groups.by_id.get_mut(group_id) {
            act(group, clock::monotonic_ms(), ticket);
        }
        self.settle(&mut groups, group_id);
        loop {
            if let Some(reply) = groups.replies.remove(&ticket) {
                return Ok(reply);
            }
            if groups.stopped {
                return Err(code::COORDINATOR_NOT_AVAILABLE);
            }
            groups = self.replied.wait(groups).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Hand out a group's replies, forget it when nothing is left, and move the timer forward when needed.
    fn settle(&self, groups: &mut Groups, group_id: &str) {
        let Some(group) = groups.by_id.get_mut(group_id) else { return };
        let replies = group.take_replies();
        add(&self.counters.rebalances, group.take_rebalances());
        let deadline_ms = group.next_deadline_ms();
        if group.is_idle() {
            groups.by_id.remove(group_id);
        }
        if !replies.is_empty() {
            groups.replies.extend(replies);
            self.replied.notify_all();
        }
        if deadline_ms.is_some_and(|deadline_ms| deadline_ms < groups.timer_sleeps_until_ms) {
            self.timer.notify_one();
        }
    }

    /// Let time pass for all groups until the broker stops; the body of the timer thread.
    pub fn run_timer(&self) {
        let mut groups = lock(&self.groups);
        while !groups.stopped {
            let now_ms = clock::monotonic_ms();
            let due = groups.by_id.iter().filter(|(_, group)| group.next_deadline_ms().is_some_and(|at| at <= now_ms));
            for group_id in due.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
                if let Some(group) = groups.by_id.get_mut(&group_id) {
                    group.tick(now_ms);
                }
                self.settle(&mut groups, &group_id);
            }
            let next_ms = groups.by_id.values().filter_map(Group::next_deadline_ms).min().unwrap_or(u64::MAX);
            let sleep_ms = next_ms.saturating_sub(now_ms).clamp(1, LONGEST_SLEEP_MS);
            groups.timer_sleeps_until_ms = now_ms + sleep_ms;
            let slept = self.timer.wait_timeout(groups, Duration::from_millis(sleep_ms));
            groups = slept.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Answer everyone who waits, and end the timer.
    pub fn stop(&self) {
        lock(&self.groups).stopped = true;
        self.replied.notify_all();
        self.timer.notify_all();
    }
}
