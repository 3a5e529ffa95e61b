//! JoinGroup, SyncGroup, Heartbeat, LeaveGroup: from the wire to the coordinator and back.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse,
    SyncGroupRequest, SyncGroupResponse,
};

use crate::api::code;
use crate::clock;
use crate::group::{Identity, JoinReply, JoinRequest};
use crate::request::Header;
use crate::serve::{COORDINATOR_NODE, Caller, text};

/// Longest session and rebalance timeouts a member may ask for.
const SESSION_MAX_MS: u64 = 1_800_000;
/// What a member may say about its subscription, and a leader about all assignments: it stays in memory.
const METADATA_MAX_BYTES: usize = 1 << 20;
const ASSIGNMENTS_MAX_BYTES: usize = 16 << 20;
/// The part of a member id that comes from the client.
const CLIENT_ID_MAX: usize = 200;

/// Why this node cannot coordinate the group at all.
pub(super) fn refusal(caller: &Caller<'_>, group_id: &str) -> Option<i16> {
    if caller.node != COORDINATOR_NODE {
        return Some(code::NOT_COORDINATOR);
    }
    group_id.is_empty().then_some(code::INVALID_GROUP_ID)
}

pub(super) fn join(caller: &Caller<'_>, header: &Header, request: &JoinGroupRequest) -> JoinGroupResponse {
    let session_timeout_ms = u64::try_from(request.session_timeout_ms).unwrap_or(0);
    let shortest = caller.shared.options.min_session_timeout_ms;
    let refused = refusal(caller, &request.group_id).or_else(|| {
        let allowed = (shortest..=SESSION_MAX_MS).contains(&session_timeout_ms);
        let metadata_bytes: usize = request.protocols.iter().map(|p| p.name.len() + p.metadata.len()).sum();
        match allowed {
            false => Some(code::INVALID_SESSION_TIMEOUT),
            true => (metadata_bytes > METADATA_MAX_BYTES).then_some(code::INVALID_REQUEST),
        }
    });
    let reply = match refused {
        Some(error) => JoinReply::refused(error, &request.member_id),
        None => {
            // Version 0 has no rebalance timeout of its own.
            let rebalance = if header.version == 0 { request.session_timeout_ms } else { request.rebalance_timeout_ms };
            // Copies: a slice would keep the whole request in memory as long as the member lives.
            let protocols = request.protocols.iter().map(|p| (p.name.to_string(), Bytes::copy_from_slice(&p.metadata)));
            let join = JoinRequest {
                member_id: request.member_id.to_string(),
                instance_id: request.group_instance_id.as_ref().map(ToString::to_string),
                protocol_type: request.protocol_type.to_string(),
                protocols: protocols.collect(),
                session_timeout_ms,
                rebalance_timeout_ms: u64::try_from(rebalance).unwrap_or(0).min(SESSION_MAX_MS),
                id_first: header.version >= 4,
                fresh_id: fresh_member_id(request.group_instance_id.as_deref().unwrap_or(&header.client_id)),
            };
            caller.shared.coordinator.join(&request.group_id, &join)
        }
    };
    join_response(reply, header.version)
}

/// An id that no member had before, also not before a restart.
fn fresh_member_id(prefix: &str) -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let prefix: String = prefix.chars().take(CLIENT_ID_MAX).collect();
    format!("{prefix}-{:x}-{:x}", clock::wall_ns(), COUNTER.fetch_add(1, Ordering::Relaxed))
}

fn join_response(reply: JoinReply, version: i16) -> JoinGroupResponse {
    let member = |row: crate::group::MemberRow| {
        let member =
            JoinGroupResponseMember::default().with_member_id(text(&row.member_id)).with_metadata(row.metadata);
        if version >= 5 { member.with_group_instance_id(row.instance_id.as_deref().map(text)) } else { member }
    };
    JoinGroupResponse::default()
        .with_error_code(reply.error)
        .with_generation_id(reply.generation)
        .with_protocol_name(Some(text(&reply.protocol)))
        .with_leader(text(&reply.leader))
        .with_member_id(text(&reply.member_id))
        .with_members(reply.members.into_iter().map(member).collect())
}

pub(super) fn sync(caller: &Caller<'_>, request: &SyncGroupRequest) -> SyncGroupResponse {
    if let Some(error) = refusal(caller, &request.group_id) {
        return SyncGroupResponse::default().with_error_code(error);
    }
    if request.assignments.iter().map(|row| row.assignment.len()).sum::<usize>() > ASSIGNMENTS_MAX_BYTES {
        return SyncGroupResponse::default().with_error_code(code::INVALID_REQUEST);
    }
    let who = Identity { member_id: &request.member_id, instance_id: request.group_instance_id.as_deref() };
    let assignment = |row: &kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment| {
        (row.member_id.to_string(), Bytes::copy_from_slice(&row.assignment))
    };
    let assignments = request.assignments.iter().map(assignment).collect();
    let reply = caller.shared.coordinator.sync(&request.group_id, who, request.generation_id, &assignments);
    SyncGroupResponse::default().with_error_code(reply.error).with_assignment(reply.assignment)
}

pub(super) fn heartbeat(caller: &Caller<'_>, request: &HeartbeatRequest) -> HeartbeatResponse {
    let who = Identity { member_id: &request.member_id, instance_id: request.group_instance_id.as_deref() };
    let beat = || caller.shared.coordinator.heartbeat(&request.group_id, who, request.generation_id);
    HeartbeatResponse::default().with_error_code(refusal(caller, &request.group_id).unwrap_or_else(beat))
}

pub(super) fn leave(caller: &Caller<'_>, version: i16, request: &LeaveGroupRequest) -> LeaveGroupResponse {
    if let Some(error) = refusal(caller, &request.group_id) {
        return LeaveGroupResponse::default().with_error_code(error);
    }
    let leave = |who| caller.shared.coordinator.leave(&request.group_id, who);
    if version < 3 {
        let error = leave(Identity { member_id: &request.member_id, instance_id: None });
        return LeaveGroupResponse::default().with_error_code(error);
    }
    let members = request.members.iter().map(|member| {
        let who = Identity { member_id: &member.member_id, instance_id: member.group_instance_id.as_deref() };
        MemberResponse::default()
            .with_member_id(member.member_id.clone())
            .with_group_instance_id(member.group_instance_id.clone())
            .with_error_code(leave(who))
    });
    LeaveGroupResponse::default().with_members(members.collect())
}
