//! Claims about the group state machine: fences one by one, then everything at once with random histories.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use proptest::prelude::*;

use super::{Group, Identity, JoinReply, JoinRequest, Reply, State, SyncReply, Ticket};
use crate::api::code;

const SESSION_MS: u64 = 6_000;
const REBALANCE_MS: u64 = 10_000;

fn request(member: &str, instance: Option<&str>, fresh: &str) -> JoinRequest {
    JoinRequest {
        member_id: member.to_owned(),
        instance_id: instance.map(str::to_owned),
        protocol_type: "consumer".to_owned(),
        protocols: vec![("range".to_owned(), Bytes::from_static(b"topics"))],
        session_timeout_ms: SESSION_MS,
        rebalance_timeout_ms: REBALANCE_MS,
        id_first: false,
        fresh_id: fresh.to_owned(),
    }
}

fn named(member_id: &str) -> Identity<'_> {
    Identity { member_id, instance_id: None }
}

/// A group with its replies collected by ticket.
struct Bench {
    group: Group,
    now_ms: u64,
    tickets: Ticket,
    replies: BTreeMap<Ticket, Reply>,
}

impl Bench {
    fn new() -> Bench {
        Bench { group: Group::new(0), now_ms: 1_000, tickets: 0, replies: BTreeMap::new() }
    }

    fn collect(&mut self) {
        for (ticket, reply) in self.group.take_replies() {
            assert!(self.replies.insert(ticket, reply).is_none(), "ticket {ticket} answered twice");
        }
    }

    fn join(&mut self, request: &JoinRequest) -> Ticket {
        self.tickets += 1;
        self.group.join(self.now_ms, self.tickets, request);
        self.collect();
        self.tickets
    }

    fn sync(&mut self, who: Identity<'_>, generation: i32, assignments: &[(&str, &str)]) -> Ticket {
        self.tickets += 1;
        let bytes = |(id, value): &(&str, &str)| ((*id).to_owned(), Bytes::copy_from_slice(value.as_bytes()));
        let assignments: HashMap<String, Bytes> = assignments.iter().map(bytes).collect();
        self.group.sync(self.now_ms, self.tickets, who, generation, &assignments);
        self.collect();
        self.tickets
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        self.group.tick(self.now_ms);
        self.collect();
    }

    fn joined(&self, ticket: Ticket) -> &JoinReply {
        match self.replies.get(&ticket) {
            Some(Reply::Join(reply)) => reply,
            other => panic!("ticket {ticket}: {other:?}"),
        }
    }

    fn synced(&self, ticket: Ticket) -> &SyncReply {
        match self.replies.get(&ticket) {
            Some(Reply::Sync(reply)) => reply,
            other => panic!("ticket {ticket}: {other:?}"),
        }
    }

    /// Members `a` (leader) and `b` in a stable generation.
    fn two_stable() -> (Bench, i32) {
        let mut bench = Bench::new();
        bench.join(&request("", None, "a"));
        bench.sync(named("a"), 1, &[("a", "all")]);
        let second = bench.join(&request("", None, "b"));
        let first = bench.join(&request("a", None, "unused"));
        let generation = bench.joined(second).generation;
        assert_eq!((bench.joined(first).leader.as_str(), bench.joined(first).members.len()), ("a", 2));
        assert!(bench.joined(second).members.is_empty(), "only the leader gets the members");
        let waiting = bench.sync(named("b"), generation, &[]);
        assert!(!bench.replies.contains_key(&waiting), "a follower waits for the leader");
        bench.sync(named("a"), generation, &[("a", "0"), ("b", "1")]);
        assert_eq!(bench.synced(waiting).assignment, Bytes::from_static(b"1"));
        assert_eq!(bench.group.state, State::Stable);
        (bench, generation)
    }
}

#[test]
fn an_id_is_asked_for_first_where_the_version_wants_it() {
    let mut bench = Bench::new();
    let first = JoinRequest { id_first: true, ..request("", None, "a") };
    let ticket = bench.join(&first);
    assert_eq!((bench.joined(ticket).error, bench.joined(ticket).member_id.as_str()), (code::MEMBER_ID_REQUIRED, "a"));
    let ticket = bench.join(&JoinRequest { id_first: true, ..request("a", None, "x") });
    assert_eq!((bench.joined(ticket).error, bench.joined(ticket).generation), (code::NONE, 1));
    let stranger = bench.join(&JoinRequest { id_first: true, ..request("never-promised", None, "x") });
    assert_eq!(bench.joined(stranger).error, code::UNKNOWN_MEMBER_ID);
}

#[test]
fn old_generations_and_strangers_are_fenced_everywhere() {
    let (mut bench, generation) = Bench::two_stable();
    let now = bench.now_ms;
    for (who, generation, expected) in [
        ("a", generation, code::NONE),
        ("a", generation - 1, code::ILLEGAL_GENERATION),
        ("a", generation + 1, code::ILLEGAL_GENERATION),
        ("z", generation, code::UNKNOWN_MEMBER_ID),
    ] {
        assert_eq!(bench.group.heartbeat(now, named(who), generation), expected, "heartbeat of {who}");
        assert_eq!(bench.group.check_commit(now, named(who), generation), expected, "commit of {who}");
        let ticket = bench.sync(named(who), generation, &[]);
        assert_eq!(bench.synced(ticket).error, expected, "sync of {who}");
    }
    assert_eq!(bench.group.check_commit(now, named(""), -1), code::UNKNOWN_MEMBER_ID);
}

#[test]
fn a_silent_member_is_put_out_and_its_late_heartbeat_is_refused() {
    let (mut bench, generation) = Bench::two_stable();
    bench.pass(SESSION_MS / 2);
    assert_eq!(bench.group.heartbeat(bench.now_ms, named("a"), generation), code::NONE);
    bench.pass(SESSION_MS / 2);
    assert_eq!(bench.group.heartbeat(bench.now_ms, named("b"), generation), code::UNKNOWN_MEMBER_ID);
    assert_eq!(bench.group.heartbeat(bench.now_ms, named("a"), generation), code::REBALANCE_IN_PROGRESS);
    let ticket = bench.join(&request("a", None, "x"));
    assert_eq!((bench.joined(ticket).generation, bench.joined(ticket).members.len()), (generation + 1, 1));
}

#[test]
fn a_member_that_does_not_rejoin_in_time_is_out() {
    let (mut bench, generation) = Bench::two_stable();
    let ticket = bench.join(&request("", None, "c"));
    for _ in 0..4 {
        bench.pass(REBALANCE_MS / 4);
        bench.group.heartbeat(bench.now_ms, named("a"), generation);
        bench.group.heartbeat(bench.now_ms, named("b"), generation);
    }
    bench.pass(1);
    let reply = bench.joined(ticket);
    assert_eq!((reply.generation, reply.leader.as_str(), reply.members.len()), (generation + 1, "c", 1));
}

#[test]
fn a_leader_that_never_assigns_does_not_block_the_group() {
    let (mut bench, _) = Bench::two_stable();
    bench.join(&request("a", None, "x"));
    bench.join(&request("b", None, "x"));
    let generation = bench.group.generation;
    let waiting = bench.sync(named("b"), generation, &[]);
    for _ in 0..12 {
        bench.group.heartbeat(bench.now_ms, named("a"), generation);
        bench.pass(REBALANCE_MS / 10);
    }
    assert_eq!(bench.synced(waiting).error, code::REBALANCE_IN_PROGRESS);
    let ticket = bench.join(&request("b", None, "x"));
    assert_eq!((bench.joined(ticket).leader.as_str(), bench.joined(ticket).members.len()), ("b", 1));
}

#[test]
fn a_static_member_returns_without_a_rebalance_and_its_old_self_is_fenced() {
    let mut bench = Bench::new();
    bench.join(&request("", Some("camera"), "old"));
    bench.sync(Identity { member_id: "old", instance_id: Some("camera") }, 1, &[("old", "mine")]);
    let ticket = bench.join(&request("", Some("camera"), "new"));
    let reply = bench.joined(ticket).clone();
    assert_eq!((reply.error, reply.generation, reply.member_id.as_str()), (code::NONE, 1, "new"));
    assert_eq!((reply.leader.as_str(), reply.members.len()), ("old", 0), "a returning leader does not assign again");
    let new = Identity { member_id: "new", instance_id: Some("camera") };
    let ticket = bench.sync(new, 1, &[]);
    assert_eq!(bench.synced(ticket).assignment, Bytes::from_static(b"mine"));
    let old = Identity { member_id: "old", instance_id: Some("camera") };
    assert_eq!(bench.group.heartbeat(bench.now_ms, old, 1), code::FENCED_INSTANCE_ID);
    assert_eq!(bench.group.check_commit(bench.now_ms, old, 1), code::FENCED_INSTANCE_ID);
    let ticket = bench.join(&request("old", Some("camera"), "x"));
    assert_eq!(bench.joined(ticket).error, code::FENCED_INSTANCE_ID);
    assert_eq!(bench.group.leave(bench.now_ms, Identity { member_id: "", instance_id: Some("camera") }), code::NONE);
    assert!(bench.group.members.is_empty());
}

#[test]
fn an_absent_static_member_keeps_its_place_during_a_rebalance_until_its_session_ends() {
    let mut bench = Bench::new();
    bench.join(&request("", Some("camera"), "s"));
    bench.sync(Identity { member_id: "s", instance_id: Some("camera") }, 1, &[("s", "all")]);
    let long = JoinRequest { session_timeout_ms: 60_000, ..request("s", Some("camera"), "x") };
    bench.join(&long);
    bench.sync(Identity { member_id: "s", instance_id: Some("camera") }, 2, &[("s", "all")]);
    let ticket = bench.join(&request("", None, "d"));
    bench.pass(REBALANCE_MS);
    assert_eq!(bench.joined(ticket).members.len(), 2, "the leader assigns to the absent member too");
}

#[test]
fn an_unknown_assignor_or_protocol_type_is_refused_and_the_common_one_is_chosen() {
    let (mut bench, _) = Bench::two_stable();
    let other = JoinRequest { protocols: vec![("sticky".into(), Bytes::new())], ..request("", None, "c") };
    let ticket = bench.join(&other);
    assert_eq!(bench.joined(ticket).error, code::INCONSISTENT_GROUP_PROTOCOL);
    let connect = JoinRequest { protocol_type: "connect".into(), ..request("", None, "c") };
    let ticket = bench.join(&connect);
    assert_eq!(bench.joined(ticket).error, code::INCONSISTENT_GROUP_PROTOCOL);
    let both = vec![("sticky".to_owned(), Bytes::new()), ("range".to_owned(), Bytes::new())];
    let ticket = bench.join(&JoinRequest { protocols: both, ..request("", None, "c") });
    bench.join(&request("a", None, "x"));
    bench.join(&request("b", None, "x"));
    assert_eq!((bench.joined(ticket).error, bench.joined(ticket).protocol.as_str()), (code::NONE, "range"));
}

/// One step of a random history. Numbers pick members, generations and times.
#[derive(Debug, Clone)]
enum Step {
    Join { member: u8, is_static: bool, id_first: bool, metadata: u8 },
    JoinUnderOldId { member: u8 },
    Sync { member: u8, back: i32 },
    Heartbeat { member: u8, back: i32 },
    Leave { member: u8 },
    Commit { member: u8, back: i32 },
    Pass { ms: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let back = prop_oneof![8 => Just(0), 1 => Just(1), 1 => Just(-1)];
    let joins = (0_u8..5, any::<bool>(), any::<bool>(), 0_u8..2);
    let time = prop_oneof![0_u64..500, 500_u64..7_000, 7_000_u64..30_000];
    prop_oneof![
        4 => joins.prop_map(|(member, is_static, id_first, metadata)| Step::Join { member, is_static, id_first, metadata }),
        1 => (0_u8..5).prop_map(|member| Step::JoinUnderOldId { member }),
        5 => (0_u8..5, back.clone()).prop_map(|(member, back)| Step::Sync { member, back }),
        2 => (0_u8..5, back.clone()).prop_map(|(member, back)| Step::Heartbeat { member, back }),
        1 => (0_u8..5).prop_map(|member| Step::Leave { member }),
        1 => (0_u8..5, back).prop_map(|(member, back)| Step::Commit { member, back }),
        2 => time.prop_map(|ms| Step::Pass { ms }),
    ]
}

/// A client as the random history plays it: it knows what it was told last.
#[derive(Debug, Clone, Default)]
struct Client {
    id: String,
    instance: Option<String>,
    generation: i32,
    former_ids: Vec<String>,
    waiting: Option<Ticket>,
}

impl Client {
    fn identity(&self) -> Identity<'_> {
        Identity { member_id: &self.id, instance_id: self.instance.as_deref() }
    }
}

struct History {
    bench: Bench,
    clients: Vec<Client>,
    asked: BTreeSet<Ticket>,
    generations_of_leaders: BTreeMap<i32, String>,
    read: BTreeSet<Ticket>,
}

impl History {
    fn new() -> History {
        let clients = vec![Client::default(); 5];
        let (asked, read) = (BTreeSet::new(), BTreeSet::new());
        History { bench: Bench::new(), clients, asked, generations_of_leaders: BTreeMap::new(), read }
    }

    fn play(&mut self, step: &Step) {
        let now = self.bench.now_ms;
        match *step {
            Step::Join { member, is_static, id_first, metadata } => self.join(member, is_static, id_first, metadata),
            Step::JoinUnderOldId { member } => {
                let Some(id) = self.clients[usize::from(member)].former_ids.first().cloned() else { return };
                let instance = self.clients[usize::from(member)].instance.clone();
                let ticket = self.bench.join(&request(&id, instance.as_deref(), "unused"));
                self.asked.insert(ticket);
            }
            Step::Sync { member, back } => {
                let client = self.clients[usize::from(member)].clone();
                let everyone: Vec<String> = self.clients.iter().map(|client| client.id.clone()).collect();
                let assignments: Vec<(&str, &str)> = everyone.iter().map(|id| (id.as_str(), id.as_str())).collect();
                let ticket = self.bench.sync(client.identity(), client.generation - back, &assignments);
                self.asked.insert(ticket);
            }
            Step::Heartbeat { member, back } => {
                let client = self.clients[usize::from(member)].clone();
                let answer = self.bench.group.heartbeat(now, client.identity(), client.generation - back);
                let current = client.generation - back == self.bench.group.generation;
                assert!(current || answer != code::NONE, "a heartbeat of another generation was accepted");
            }
            Step::Leave { member } => {
                let client = self.clients[usize::from(member)].clone();
                self.bench.group.leave(now, client.identity());
            }
            Step::Commit { member, back } => {
                let client = self.clients[usize::from(member)].clone();
                let answer = self.bench.group.check_commit(now, client.identity(), client.generation - back);
                let current = client.generation - back == self.bench.group.generation;
                let by_hand = client.generation - back < 0 && self.bench.group.members.is_empty();
                assert!(current || by_hand || answer != code::NONE, "a commit of another generation was accepted");
            }
            Step::Pass { ms } => self.bench.pass(ms),
        }
        self.bench.collect();
        self.learn();
        self.check();
    }

    fn join(&mut self, member: u8, is_static: bool, id_first: bool, metadata: u8) {
        let fresh = format!("m{member}-{}", self.bench.tickets);
        let client = &mut self.clients[usize::from(member)];
        if client.id.is_empty() && client.former_ids.is_empty() {
            client.instance = is_static.then(|| format!("instance-{member}"));
        }
        let instance = client.instance.clone();
        // A static member now and then forgets its id, as after a restart.
        let id = if instance.is_some() && metadata == 0 { String::new() } else { client.id.clone() };
        let protocols = vec![("range".to_owned(), Bytes::copy_from_slice(&[metadata]))];
        let request = JoinRequest { id_first, protocols, ..request(&id, instance.as_deref(), &fresh) };
        let ticket = self.bench.join(&request);
        self.asked.insert(ticket);
        self.clients[usize::from(member)].waiting = Some(ticket);
    }

    /// Clients read their replies.
    fn learn(&mut self) {
        for client in &mut self.clients {
            let Some(ticket) = client.waiting else { continue };
            let Some(Reply::Join(reply)) = self.bench.replies.get(&ticket) else { continue };
            client.waiting = None;
            if reply.member_id != client.id && !reply.member_id.is_empty() {
                client.former_ids.push(std::mem::replace(&mut client.id, reply.member_id.clone()));
                client.former_ids.retain(|id| !id.is_empty());
            }
            match reply.error {
                code::NONE => client.generation = reply.generation,
                code::UNKNOWN_MEMBER_ID | code::FENCED_INSTANCE_ID => client.id.clear(),
                _ => {}
            }
        }
        for (ticket, reply) in &self.bench.replies {
            assert!(self.asked.contains(ticket), "a reply to ticket {ticket} that nobody holds");
            if let Reply::Join(reply) = reply
                && self.read.insert(*ticket)
                && reply.error == code::NONE
                && !reply.members.is_empty()
            {
                assert_eq!(reply.leader, reply.member_id, "only the leader gets the members");
                let leader =
                    self.generations_of_leaders.entry(reply.generation).or_insert_with(|| reply.leader.clone());
                assert_eq!(*leader, reply.leader, "generation {} has two leaders", reply.generation);
            }
        }
    }

    fn check(&self) {
        let group = &self.bench.group;
        for (instance, id) in &group.statics {
            let owner = group.members.get(id).and_then(|member| member.instance_id.as_ref());
            assert_eq!(owner, Some(instance), "an instance id without its member");
        }
        assert_eq!(group.members.is_empty(), group.leader.is_none(), "leader {:?}", group.leader);
        if let Some(leader) = &group.leader {
            assert!(group.members.contains_key(leader), "the leader left");
        }
        match group.state {
            State::Empty => assert!(group.members.is_empty()),
            State::Stable => {
                assert!(group.members.values().all(|member| !member.waits()), "someone waits in a stable group")
            }
            State::Completing { .. } => {
                assert!(group.members.values().all(|member| member.waiting_join.is_none()));
            }
            State::Preparing { .. } => {
                assert!(group.members.values().all(|member| member.waiting_sync.is_none()));
                assert!(!group.members.is_empty(), "nobody to prepare for");
            }
        }
        let waits = group.members.values().any(|member| member.waits());
        assert!(!waits || group.next_deadline_ms().is_some(), "somebody waits and no time will end it");
        if let Some(deadline_ms) = group.next_deadline_ms()
            && !matches!(group.state, State::Preparing { .. })
        {
            let since = self.bench.now_ms;
            assert!(deadline_ms + 60_000 > since, "a deadline was missed by a minute");
        }
    }
}

fn cases() -> u32 {
    if std::env::var_os("REELBENCH_LONG").is_some() { 50_000 } else { 600 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever clients do, the group keeps its rules, and when they fall silent every question is answered.
    #[test]
    fn any_history_keeps_the_rules_and_answers_everyone(steps in proptest::collection::vec(step(), 1..120)) {
        let mut history = History::new();
        let mut generation = 0;
        for step in &steps {
            history.play(step);
            prop_assert!(history.bench.group.generation >= generation, "the generation went back");
            generation = history.bench.group.generation;
        }
        for _ in 0..100 {
            history.bench.pass(REBALANCE_MS);
            history.learn();
        }
        for ticket in &history.asked {
            prop_assert!(history.bench.replies.contains_key(ticket), "ticket {ticket} was never answered");
        }
        prop_assert!(history.bench.group.is_idle(), "silent members stayed: {:?}", history.bench.group);
    }
}
