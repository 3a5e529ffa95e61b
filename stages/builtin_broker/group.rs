//! A consumer group as a pure state machine: requests and the time go in, answers come out.
//!
//! It follows the classic group protocol: members join, the leader assigns, everyone syncs, heartbeats keep the session.
//! A request that has to wait is known by its ticket; its reply appears in the outbox when its time has come.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

use crate::api::code;

#[cfg(test)]
mod tests;

/// One request that waits for a reply.
pub(crate) type Ticket = u64;

/// Members of one group; a group of all consumers of a large run stays far below.
const MEMBERS_MAX: usize = 1_000;

/// What a JoinGroup request says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JoinRequest {
    /// Empty on the first attempt.
    pub member_id: String,
    /// Set for static members.
    pub instance_id: Option<String>,
    pub protocol_type: String,
    /// Assignors with the subscription encoded for each, most wanted first.
    pub protocols: Vec<(String, Bytes)>,
    pub session_timeout_ms: u64,
    pub rebalance_timeout_ms: u64,
    /// The client's version asks for a member id first and joins with it second.
    pub id_first: bool,
    /// The id a new member gets.
    pub fresh_id: String,
}

/// A member as the leader is told about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberRow {
    pub member_id: String,
    pub instance_id: Option<String>,
    pub metadata: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JoinReply {
    pub error: i16,
    pub generation: i32,
    pub protocol: String,
    pub leader: String,
    pub member_id: String,
    /// Filled for the leader only.
    pub members: Vec<MemberRow>,
}

impl JoinReply {
    pub fn refused(error: i16, member_id: &str) -> JoinReply {
        let (protocol, leader) = (String::new(), String::new());
        JoinReply { error, generation: -1, protocol, leader, member_id: member_id.to_owned(), members: Vec::new() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyncReply {
    pub error: i16,
    pub assignment: Bytes,
}

impl SyncReply {
    pub fn refused(error: i16) -> SyncReply {
        SyncReply { error, assignment: Bytes::new() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Join(JoinReply),
    Sync(SyncReply),
}

/// Who speaks, in every request after the join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity<'a> {
    pub member_id: &'a str,
    pub instance_id: Option<&'a str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Member {
    instance_id: Option<String>,
    protocols: Vec<(String, Bytes)>,
    session_timeout_ms: u64,
    rebalance_timeout_ms: u64,
    session_ends_ms: u64,
    waiting_join: Option<Ticket>,
    waiting_sync: Option<Ticket>,
    /// Sent its sync in this generation.
    synced: bool,
    assignment: Bytes,
}

impl Member {
    fn waits(&self) -> bool {
        self.waiting_join.is_some() || self.waiting_sync.is_some()
    }

    fn metadata(&self, protocol: &str) -> Bytes {
        let found = self.protocols.iter().find(|(name, _)| name == protocol);
        found.map(|(_, metadata)| metadata.clone()).unwrap_or_default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Empty,
    /// Waiting for members to join again.
    Preparing {
        not_before_ms: u64,
        ends_ms: u64,
    },
    /// Waiting for the leader's assignment.
    Completing {
        ends_ms: u64,
    },
    Stable,
}

/// One consumer group.
#[derive(Debug)]
pub(crate) struct Group {
    state: State,
    generation: i32,
    protocol_type: String,
    protocol: String,
    leader: Option<String>,
    members: BTreeMap<String, Member>,
    /// Instance id to member id.
    statics: HashMap<String, String>,
    /// Ids given out but not yet joined with, and when they lapse.
    promised: BTreeMap<String, u64>,
    initial_delay_ms: u64,
    outbox: Vec<(Ticket, Reply)>,
    rebalances: u64,
}

impl Group {
    pub fn new(initial_delay_ms: u64) -> Group {
        Group {
            state: State::Empty,
            generation: 0,
            protocol_type: String::new(),
            protocol: String::new(),
            leader: None,
            members: BTreeMap::new(),
            statics: HashMap::new(),
            promised: BTreeMap::new(),
            initial_delay_ms,
            outbox: Vec::new(),
            rebalances: 0,
        }
    }

    /// Nothing would be lost by forgetting this group.
    pub fn is_idle(&self) -> bool {
        self.members.is_empty() && self.promised.is_empty() && self.outbox.is_empty()
    }

    /// Replies that are due, each once.
    pub fn take_replies(&mut self) -> Vec<(Ticket, Reply)> {
        std::mem::take(&mut self.outbox)
    }

    /// Rebalances completed since the last call.
    pub fn take_rebalances(&mut self) -> u64 {
        std::mem::take(&mut self.rebalances)
    }

    /// When `tick` has something to do next.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        let sessions = self.members.values().filter(|member| !member.waits()).map(|member| member.session_ends_ms);
        let phase = match self.state {
            State::Empty | State::Stable => None,
            State::Preparing { not_before_ms, ends_ms } if self.all_joined() => Some(not_before_ms.min(ends_ms)),
            State::Preparing { ends_ms, .. } | State::Completing { ends_ms } => Some(ends_ms),
        };
        sessions.chain(self.promised.values().copied()).chain(phase).min()
    }

    /// A member wants in, or in again. The reply appears in the outbox, now or later.
    pub fn join(&mut self, now_ms: u64, ticket: Ticket, request: &JoinRequest) {
        if let Err((error, member_id)) = self.try_join(now_ms, ticket, request) {
            self.outbox.push((ticket, Reply::Join(JoinReply::refused(error, &member_id))));
        }
    }

    fn try_join(&mut self, now_ms: u64, ticket: Ticket, request: &JoinRequest) -> Result<(), (i16, String)> {
        let given = request.member_id.as_str();
        let refuse = |error| Err((error, given.to_owned()));
        if !self.accepts(request) {
            return refuse(code::INCONSISTENT_GROUP_PROTOCOL);
        }
        let known_static = request.instance_id.as_ref().map(|instance| self.statics.get(instance).cloned());
        match known_static {
            Some(Some(current)) if given.is_empty() => self.replace_static(now_ms, ticket, &current, request),
            Some(Some(current)) if current != given => return refuse(code::FENCED_INSTANCE_ID),
            None | Some(None) if given.is_empty() => {
                if self.members.len() + self.promised.len() >= MEMBERS_MAX {
                    return refuse(code::GROUP_MAX_SIZE_REACHED);
                }
                if request.id_first && request.instance_id.is_none() {
                    let lapses_ms = now_ms.saturating_add(request.session_timeout_ms);
                    self.promised.insert(request.fresh_id.clone(), lapses_ms);
                    return Err((code::MEMBER_ID_REQUIRED, request.fresh_id.clone()));
                }
                self.add(now_ms, ticket, request.fresh_id.clone(), request);
            }
            None if self.promised.remove(given).is_some() => self.add(now_ms, ticket, given.to_owned(), request),
            _ if self.members.contains_key(given) => self.rejoin(now_ms, ticket, given, request),
            _ => return refuse(code::UNKNOWN_MEMBER_ID),
        }
        Ok(())
    }

    fn accepts(&self, request: &JoinRequest) -> bool {
        if request.protocol_type.is_empty() || request.protocols.is_empty() {
            return false;
        }
        let shared =
            |name: &String| self.members.values().all(|member| member.protocols.iter().any(|(n, _)| n == name));
        let same_type = request.protocol_type == self.protocol_type;
        self.members.is_empty() || (same_type && request.protocols.iter().any(|(name, _)| shared(name)))
    }

    fn add(&mut self, now_ms: u64, ticket: Ticket, member_id: String, request: &JoinRequest) {
        if let Some(instance) = &request.instance_id {
            self.statics.insert(instance.clone(), member_id.clone());
        }
        if self.members.is_empty() {
            self.protocol_type.clone_from(&request.protocol_type);
        }
        self.leader.get_or_insert_with(|| member_id.clone());
        let member = Member {
            instance_id: request.instance_id.clone(),
            protocols: request.protocols.clone(),
            session_timeout_ms: request.session_timeout_ms,
            rebalance_timeout_ms: request.rebalance_timeout_ms,
            session_ends_ms: now_ms.saturating_add(request.session_timeout_ms),
            waiting_join: Some(ticket),
            waiting_sync: None,
            synced: false,
            assignment: Bytes::new(),
        };
        self.members.insert(member_id, member);
        self.rebalance(now_ms);
    }

    fn rejoin(&mut self, now_ms: u64, ticket: Ticket, member_id: &str, request: &JoinRequest) {
        let leads = self.leader.as_deref() == Some(member_id);
        let changed = self.members.get(member_id).is_some_and(|member| member.protocols != request.protocols);
        let answer_at_once = match self.state {
            State::Completing { .. } => !changed,
            // A leader that joins again has seen something change, for example a topic's partitions.
            State::Stable => !changed && !leads,
            State::Preparing { .. } | State::Empty => false,
        };
        self.update(now_ms, member_id, request);
        if answer_at_once {
            let reply = self.join_reply(member_id, None);
            self.outbox.push((ticket, Reply::Join(reply)));
            return;
        }
        self.wait_for_join(member_id, ticket);
        self.rebalance(now_ms);
    }

    fn update(&mut self, now_ms: u64, member_id: &str, request: &JoinRequest) {
        if let Some(member) = self.members.get_mut(member_id) {
            member.protocols.clone_from(&request.protocols);
            member.session_timeout_ms = request.session_timeout_ms;
            member.rebalance_timeout_ms = request.rebalance_timeout_ms;
            member.session_ends_ms = now_ms.saturating_add(request.session_timeout_ms);
        }
    }

    fn wait_for_join(&mut self, member_id: &str, ticket: Ticket) {
        let Some(member) = self.members.get_mut(member_id) else { return };
        // An earlier join of the same member came over a connection that its client gave up.
        if let Some(older) = member.waiting_join.replace(ticket) {
            let reply = JoinReply::refused(code::REBALANCE_IN_PROGRESS, member_id);
            self.outbox.push((older, Reply::Join(reply)));
        }
    }

    /// A static member came back without its id: the new one takes the old one's place and the old one is fenced.
    fn replace_static(&mut self, now_ms: u64, ticket: Ticket, old_id: &str, request: &JoinRequest) {
        let Some(mut member) = self.members.remove(old_id) else { return };
        if let Some(older) = member.waiting_join.take() {
            self.outbox.push((older, Reply::Join(JoinReply::refused(code::FENCED_INSTANCE_ID, old_id))));
        }
        if let Some(older) = member.waiting_sync.take() {
            self.outbox.push((older, Reply::Sync(SyncReply::refused(code::FENCED_INSTANCE_ID))));
        }
        let new_id = request.fresh_id.clone();
        self.members.insert(new_id.clone(), member);
        if let Some(instance) = &request.instance_id {
            self.statics.insert(instance.clone(), new_id.clone());
        }
        let led = self.leader.as_deref() == Some(old_id);
        if led {
            self.leader = Some(new_id.clone());
        }
        self.update(now_ms, &new_id, request);
        if self.state == State::Stable && self.select_protocol() == self.protocol {
            // Told that the old id leads, a returning leader does not assign again.
            let reply = self.join_reply(&new_id, led.then_some(old_id));
            self.outbox.push((ticket, Reply::Join(reply)));
            return;
        }
        self.wait_for_join(&new_id, ticket);
        self.rebalance(now_ms);
    }

    fn join_reply(&self, member_id: &str, leader_told: Option<&str>) -> JoinReply {
        let leader = leader_told.or(self.leader.as_deref()).unwrap_or_default().to_owned();
        let row = |(id, member): (&String, &Member)| MemberRow {
            member_id: id.clone(),
            instance_id: member.instance_id.clone(),
            metadata: member.metadata(&self.protocol),
        };
        let members = if leader == member_id { self.members.iter().map(row).collect() } else { Vec::new() };
        let (generation, protocol) = (self.generation, self.protocol.clone());
        JoinReply { error: code::NONE, generation, protocol, leader, member_id: member_id.to_owned(), members }
    }

    /// Begin a rebalance, or go on with the running one.
    fn rebalance(&mut self, now_ms: u64) {
        if !matches!(self.state, State::Preparing { .. }) {
            for member in self.members.values_mut() {
                member.synced = false;
                member.assignment = Bytes::new();
                if let Some(ticket) = member.waiting_sync.take() {
                    member.session_ends_ms = now_ms.saturating_add(member.session_timeout_ms);
                    self.outbox.push((ticket, Reply::Sync(SyncReply::refused(code::REBALANCE_IN_PROGRESS))));
                }
            }
            let delay_ms = if self.state == State::Empty { self.initial_delay_ms } else { 0 };
            let ends_ms = now_ms.saturating_add(self.longest_rebalance_ms().max(delay_ms));
            self.state = State::Preparing { not_before_ms: now_ms.saturating_add(delay_ms), ends_ms };
        }
        self.finish_join_if_due(now_ms);
    }

    fn longest_rebalance_ms(&self) -> u64 {
        self.members.values().map(|member| member.rebalance_timeout_ms).max().unwrap_or(0)
    }

    fn all_joined(&self) -> bool {
        self.promised.is_empty() && self.members.values().all(|member| member.waiting_join.is_some())
    }

    fn finish_join_if_due(&mut self, now_ms: u64) {
        let State::Preparing { not_before_ms, ends_ms } = self.state else { return };
        let nobody = self.members.is_empty();
        if nobody || now_ms >= ends_ms || (self.all_joined() && now_ms >= not_before_ms) {
            self.finish_join(now_ms);
        }
    }

    fn finish_join(&mut self, now_ms: u64) {
        // A static member may be away for its session timeout; a dynamic one that did not join again is out.
        let absent = |member: &Member| member.waiting_join.is_none() && member.instance_id.is_none();
        self.members.retain(|_, member| !absent(member));
        let members = &self.members;
        self.statics.retain(|_, member_id| members.contains_key(member_id));
        self.choose_leader();
        let ends_ms = now_ms.saturating_add(self.longest_rebalance_ms().max(1));
        if !self.members.is_empty() && self.members.values().all(|member| member.waiting_join.is_none()) {
            // Only absent static members are left: wait on, until one returns or its session ends.
            self.state = State::Preparing { not_before_ms: now_ms, ends_ms };
            return;
        }
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        self.rebalances += 1;
        if self.members.is_empty() {
            (self.state, self.protocol) = (State::Empty, String::new());
            return;
        }
        self.protocol = self.select_protocol();
        self.state = State::Completing { ends_ms };
        let waiting: Vec<(String, Ticket)> = self
            .members
            .iter_mut()
            .filter_map(|(id, member)| Some((id.clone(), member.waiting_join.take()?)))
            .collect();
        for (member_id, ticket) in waiting {
            self.keep_alive(now_ms, &member_id);
            let reply = self.join_reply(&member_id, None);
            self.outbox.push((ticket, Reply::Join(reply)));
        }
    }

    fn choose_leader(&mut self) {
        let joined = |id: &String| self.members.get(id).is_some_and(|member| member.waiting_join.is_some());
        if self.leader.as_ref().is_some_and(joined) {
            return;
        }
        let first = self.members.iter().find(|(_, member)| member.waiting_join.is_some());
        self.leader = first.or_else(|| self.members.iter().next()).map(|(id, _)| id.clone());
    }

    /// The assignor every member knows that most members want; the first by name when equal.
    fn select_protocol(&self) -> String {
        let known_to_all =
            |name: &str| self.members.values().all(|member| member.protocols.iter().any(|(n, _)| n == name));
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            if let Some((name, _)) = member.protocols.iter().find(|(name, _)| known_to_all(name)) {
                *votes.entry(name).or_default() += 1;
            }
        }
        let most = votes.values().copied().max().unwrap_or(0);
        votes.iter().find(|(_, count)| **count == most).map(|(name, _)| (*name).to_owned()).unwrap_or_default()
    }

    fn keep_alive(&mut self, now_ms: u64, member_id: &str) {
        if let Some(member) = self.members.get_mut(member_id) {
            member.session_ends_ms = now_ms.saturating_add(member.session_timeout_ms);
        }
    }

    /// Whether the speaker is who it says; the error is the code to answer.
    fn identify(&self, who: Identity<'_>) -> Result<(), i16> {
        if let Some(instance) = who.instance_id {
            match self.statics.get(instance) {
                Some(current) if current != who.member_id => return Err(code::FENCED_INSTANCE_ID),
                None => return Err(code::UNKNOWN_MEMBER_ID),
                Some(_) => {}
            }
        }
        if self.members.contains_key(who.member_id) { Ok(()) } else { Err(code::UNKNOWN_MEMBER_ID) }
    }

    fn identify_in(&self, who: Identity<'_>, generation: i32) -> Result<(), i16> {
        self.identify(who)?;
        if generation == self.generation { Ok(()) } else { Err(code::ILLEGAL_GENERATION) }
    }

    /// A member asks for its assignment; the leader brings everyone's. The reply appears in the outbox.
    pub fn sync(
        &mut self,
        now_ms: u64,
        ticket: Ticket,
        who: Identity<'_>,
        generation: i32,
        assignments: &HashMap<String, Bytes>,
    ) {
        let refused = self.identify_in(who, generation).err();
        let refused = refused.or(matches!(self.state, State::Preparing { .. }).then_some(code::REBALANCE_IN_PROGRESS));
        if let Some(error) = refused {
            self.outbox.push((ticket, Reply::Sync(SyncReply::refused(error))));
            return;
        }
        self.keep_alive(now_ms, who.member_id);
        let leads = self.leader.as_deref() == Some(who.member_id);
        if let Some(member) = self.members.get_mut(who.member_id) {
            member.synced = true;
            if let Some(older) = member.waiting_sync.replace(ticket) {
                self.outbox.push((older, Reply::Sync(SyncReply::refused(code::REBALANCE_IN_PROGRESS))));
            }
        }
        if leads && matches!(self.state, State::Completing { .. }) {
            for (id, member) in &mut self.members {
                member.assignment = assignments.get(id).cloned().unwrap_or_default();
            }
            self.state = State::Stable;
        }
        if self.state == State::Stable {
            self.answer_syncs(now_ms);
        }
    }

    fn answer_syncs(&mut self, now_ms: u64) {
        for member in self.members.values_mut() {
            if let Some(ticket) = member.waiting_sync.take() {
                member.session_ends_ms = now_ms.saturating_add(member.session_timeout_ms);
                let reply = SyncReply { error: code::NONE, assignment: member.assignment.clone() };
                self.outbox.push((ticket, Reply::Sync(reply)));
            }
        }
    }

    /// A sign of life. The answer tells the member to join again when a rebalance runs.
    pub fn heartbeat(&mut self, now_ms: u64, who: Identity<'_>, generation: i32) -> i16 {
        if let Err(error) = self.identify_in(who, generation) {
            return error;
        }
        self.keep_alive(now_ms, who.member_id);
        if matches!(self.state, State::Preparing { .. }) { code::REBALANCE_IN_PROGRESS } else { code::NONE }
    }

    /// A member goes, by its id, by its instance id, or by both.
    pub fn leave(&mut self, now_ms: u64, who: Identity<'_>) -> i16 {
        if who.instance_id.is_none() && self.promised.remove(who.member_id).is_some() {
            self.finish_join_if_due(now_ms);
            return code::NONE;
        }
        let current = who.instance_id.and_then(|instance| self.statics.get(instance)).cloned();
        let member_id = match current {
            Some(current) if who.member_id.is_empty() => current,
            _ => match self.identify(who) {
                Ok(()) => who.member_id.to_owned(),
                Err(error) => return error,
            },
        };
        self.remove(now_ms, &member_id, code::UNKNOWN_MEMBER_ID);
        code::NONE
    }

    fn remove(&mut self, now_ms: u64, member_id: &str, told: i16) {
        let Some(mut member) = self.members.remove(member_id) else { return };
        if let Some(instance) = &member.instance_id {
            self.statics.remove(instance);
        }
        if let Some(ticket) = member.waiting_join.take() {
            self.outbox.push((ticket, Reply::Join(JoinReply::refused(told, member_id))));
        }
        if let Some(ticket) = member.waiting_sync.take() {
            self.outbox.push((ticket, Reply::Sync(SyncReply::refused(told))));
        }
        if self.leader.as_deref() == Some(member_id) {
            self.leader = None;
            self.choose_leader();
        }
        self.rebalance(now_ms);
    }

    /// Whether a commit by this member in this generation is to be stored.
    pub fn check_commit(&mut self, now_ms: u64, who: Identity<'_>, generation: i32) -> i16 {
        // Without a generation an assigned-by-hand consumer commits, which is fine while the group has no members.
        if generation < 0 && self.members.is_empty() {
            return code::NONE;
        }
        if let Err(error) = self.identify_in(who, generation) {
            return error;
        }
        if matches!(self.state, State::Completing { .. }) {
            return code::REBALANCE_IN_PROGRESS;
        }
        self.keep_alive(now_ms, who.member_id);
        code::NONE
    }

    /// Let time pass: sessions and rebalances end.
    pub fn tick(&mut self, now_ms: u64) {
        self.promised.retain(|_, lapses_ms| *lapses_ms > now_ms);
        let ended = |member: &Member| !member.waits() && member.session_ends_ms <= now_ms;
        let silent: Vec<String> = self.members.iter().filter(|(_, m)| ended(m)).map(|(id, _)| id.clone()).collect();
        for member_id in silent {
            self.remove(now_ms, &member_id, code::UNKNOWN_MEMBER_ID);
        }
        if let State::Completing { ends_ms } = self.state
            && ends_ms <= now_ms
        {
            let late = self.members.iter().filter(|(_, member)| !member.synced).map(|(id, _)| id.clone());
            for member_id in late.collect::<Vec<_>>() {
                self.remove(now_ms, &member_id, code::UNKNOWN_MEMBER_ID);
            }
        }
        self.finish_join_if_due(now_ms);
    }
}
