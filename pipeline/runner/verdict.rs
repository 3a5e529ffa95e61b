//! The verdict: nine rules over the evidence of a run, each with its limit and what was seen. Pure: no I/O, no time.

use contract::summary::{AuditCounts, Check, Status, Verdict};

/// Everything the rules look at. `None` where it was not or could not be measured.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    pub audit: Option<AuditCounts>,
    pub acks_all: bool,
    pub idempotent: bool,
    pub scheduled: u64,
    pub offered_main: u64,
    pub late: u64,
    pub dropped_main: u64,
    pub budget: f64,
    pub deadline_ns: i64,
    pub main_ns: i64,
    /// By stage: least-squares slope of lag (seconds of age each second) and the half width of its 99 % interval.
    pub lag_slopes: Vec<(String, f64, f64)>,
    pub broker_died: Option<String>,
    /// The broker did not answer at the end of the run.
    pub broker_silent: Option<String>,
    pub storage_full: Option<String>,
    /// A source is unpaced: a frame is due when it is offered, and lateness says nothing.
    pub closed_loop: bool,
    /// Consuming stages that died and did not come back: (role, why).
    pub consumers_died: Vec<(String, String)>,
    pub inference_failed: u64,
    pub unfinished: u64,
    pub commit_errors: u64,
    /// By paced source: p99 of its self-lag, and its frame period.
    pub self_lags: Vec<SelfLag>,
    pub self_lag_over: u64,
    pub decode_under_test: bool,
    pub wall_step_ns: i64,
    pub data_dir_ram: bool,
    /// (device bytes written after sync, bytes the logs took in), where the device can be read and nothing was deleted.
    pub device_and_log_bytes: Option<(u64, u64)>,
    /// Generators, exporters or the runner that died: (role, why).
    pub others_died: Vec<(String, String)>,
    pub steal: Option<f64>,
    pub max_steal: f64,
    pub interrupted: bool,
    pub chains_broken: u64,
    /// Limit on p99 age and what was seen.
    pub p99_limit_ns: Option<i64>,
    pub p99_ns: Option<i64>,
}

/// Self-lag of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfLag {
    pub stage: String,
    pub p99_ns: Option<i64>,
    pub frame_period_ns: i64,
}

fn check(
    id: &str,
    stage: Option<&str>,
    limit: impl Into<String>,
    observed: impl Into<String>,
    broken: Option<Status>,
) -> Check {
    Check {
        id: id.into(),
        stage: stage.map(str::to_owned),
        limit: limit.into(),
        observed: observed.into(),
        status: Some(broken.unwrap_or(Status::Pass)),
    }
}

impl Evidence {
    /// The system under test ended or held up the run, so that too few samples are its doing and not the generator's.
    fn cut_by_system(&self) -> bool {
        let held_up = self.audit.as_ref().is_some_and(|audit| audit.in_flight > 0);
        let dead = self.broker_died.is_some() || self.broker_silent.is_some() || !self.consumers_died.is_empty();
        held_up || dead || self.storage_full.is_some()
    }

    /// A check that needs samples: INVALID without them, unless the system under test is why.
    fn too_few(&self, id: &str, stage: Option<&str>, limit: &str, observed: &str) -> Check {
        if self.cut_by_system() {
            return Check { stage: stage.map(str::to_owned), ..unknown(id, limit, observed) };
        }
        check(id, stage, limit, observed, Some(Status::Invalid))
    }
}

fn unknown(id: &str, limit: &str, why: &str) -> Check {
    Check { id: id.into(), stage: None, limit: limit.into(), observed: why.into(), status: None }
}

fn broken(is: bool, status: Status) -> Option<Status> {
    is.then_some(status)
}

/// 14883 as 14,883.
fn n(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn ms(ns: i64) -> String {
    format!("{:.1} ms", ns as f64 / 1e6)
}

/// Judges a run: rule 1 first, then INVALID, then FAIL, then PASS; every broken rule is listed.
pub fn judge(evidence: &Evidence) -> Verdict {
    let mut checks = Vec::new();
    if let Some(audit) = &evidence.audit {
        audit_checks(evidence, audit, &mut checks);
        frame_checks(evidence, audit, &mut checks);
        generator_checks(evidence, &mut checks);
    }
    error_checks(evidence, &mut checks);
    host_checks(evidence, &mut checks);
    let is_audit = |check: &&Check| check.id == "audit" && check.status == Some(Status::Fail);
    let worst = |status: Status| checks.iter().any(|check| check.status == Some(status));
    let status = if checks.iter().any(|check| is_audit(&check)) {
        Status::Fail
    } else if worst(Status::Invalid) {
        Status::Invalid
    } else if worst(Status::Fail) {
        Status::Fail
    } else {
        Status::Pass
    };
    Verdict { status, reasons: reasons(&checks, status, evidence), checks }
}

fn reasons(checks: &[Check], status: Status, evidence: &Evidence) -> Vec<String> {
    let line = |check: &Check| {
        let stage = check.stage.as_ref().map(|stage| format!(" `{stage}`")).unwrap_or_default();
        let class = check.status.map_or("", Status::name);
        format!("{class} {}{stage}: {} (limit: {})", check.id, check.observed, check.limit)
    };
    let mut wrong: Vec<&Check> =
        checks.iter().filter(|check| !matches!(check.status, Some(Status::Pass) | None)).collect();
    // What decided comes first.
    wrong.sort_by_key(|check| check.status != Some(status));
    let mut reasons: Vec<String> = wrong.into_iter().map(line).collect();
    if status == Status::Pass {
        let counted = evidence.audit.as_ref().map(|audit| {
            format!("{} frames offered, every one accounted for; {} late", n(audit.offered), n(evidence.late))
        });
        reasons.push(counted.unwrap_or_else(|| "every rule held".into()));
    }
    reasons
}

fn audit_checks(evidence: &Evidence, audit: &AuditCounts, checks: &mut Vec<Check>) {
    let sum = format!(
        "{} offered = {} delivered + {} lost + {} dropped + {} in flight; {} unexplained",
        n(audit.offered),
        n(audit.delivered),
        n(audit.lost),
        n(audit.dropped),
        n(audit.in_flight),
        n(audit.unexplained)
    );
    let exact = "offered = delivered + lost + dropped + in flight";
    checks.push(check("audit", None, exact, sum, broken(!audit.identity_holds, Status::Fail)));
    let corrupt = broken(audit.corrupt > 0, Status::Fail);
    checks.push(check("audit", None, "0 corrupt", format!("{} corrupt", audit.corrupt), corrupt));
    if evidence.acks_all {
        let lost = broken(audit.lost_acked > 0, Status::Fail);
        checks.push(check("audit", None, "0 acknowledged frames lost", format!("{} lost", audit.lost_acked), lost));
    }
    if evidence.idempotent {
        let seen = format!("{} duplicates, {} reordered", audit.duplicates, audit.reordered);
        let wrong = broken(audit.duplicates + audit.reordered > 0, Status::Fail);
        checks.push(check("audit", None, "0 duplicates, 0 reordered (idempotent producer)", seen, wrong));
    }
    let chains = broken(evidence.chains_broken > 0, Status::Fail);
    let seen = format!("{} latency chains do not sum to end - due", evidence.chains_broken);
    checks.push(check("audit", None, "0 broken latency chains", seen, chains));
}

fn frame_checks(evidence: &Evidence, audit: &AuditCounts, checks: &mut Vec<Check>) {
    let left = audit.in_flight + evidence.unfinished;
    let seen = format!("{} in flight, {} unfinished", n(audit.in_flight), n(evidence.unfinished));
    checks.push(check("not-drained", None, "nothing left at the end of drain", seen, broken(left > 0, Status::Fail)));
    let late = if evidence.closed_loop { 0 } else { evidence.late };
    let bad = late + evidence.dropped_main + audit.lost;
    let limit = format!("at most {:.2} % of frames due in main late, dropped or lost", evidence.budget * 100.0);
    if evidence.offered_main == 0 {
        checks.push(evidence.too_few("budget", None, &limit, "no frame was offered in main"));
    } else {
        let share = bad as f64 / evidence.offered_main as f64;
        let seen = format!(
            "{:.3} %: {} late + {} dropped + {} lost of {}",
            share * 100.0,
            n(late),
            n(evidence.dropped_main),
            n(audit.lost),
            n(evidence.offered_main)
        );
        checks.push(check("budget", None, limit, seen, broken(share > evidence.budget, Status::Fail)));
    }
    for (stage, slope, half_width) in &evidence.lag_slopes {
        let grown_ns = slope * evidence.main_ns as f64;
        let grows = slope - half_width > 0.0 && grown_ns > evidence.deadline_ns as f64 / 2.0;
        let limit = format!("lag grows by at most {} over main", ms(evidence.deadline_ns / 2));
        let seen =
            format!("{:+.2} ms/s (99 % +/- {:.2}), {} over main", slope * 1e3, half_width * 1e3, ms(grown_ns as i64));
        checks.push(check("backlog", Some(stage), limit, seen, broken(grows, Status::Fail)));
    }
    if let Some(limit) = evidence.p99_limit_ns {
        let wish = format!("p99 age at most {}", ms(limit));
        checks.push(match evidence.p99_ns {
            Some(p99) => check("p99", None, wish, ms(p99), broken(p99 > limit, Status::Fail)),
            None => evidence.too_few("p99", None, &wish, "too few samples for a p99"),
        });
    }
}

fn generator_checks(evidence: &Evidence, checks: &mut Vec<Check>) {
    let class = if evidence.decode_under_test { Status::Fail } else { Status::Invalid };
    for SelfLag { stage, p99_ns, frame_period_ns } in &evidence.self_lags {
        let limit = format!("p99 self-lag at most one frame period, {}", ms(*frame_period_ns));
        checks.push(match p99_ns {
            Some(p99) => check("generator", Some(stage), limit, ms(*p99), broken(p99 > frame_period_ns, class)),
            None => evidence.too_few("generator", Some(stage), &limit, "too few samples for a p99"),
        });
    }
    let over = evidence.self_lag_over as f64 > evidence.offered_main as f64 * 0.001;
    let limit = format!("at most 0.1 % of frames with self-lag above {}", ms(evidence.deadline_ns / 4));
    checks.push(check("generator", None, limit, format!("{} frames", evidence.self_lag_over), broken(over, class)));
    let offered = evidence.audit.as_ref().map_or(0, |audit| audit.offered);
    let short = (offered as f64) < evidence.scheduled as f64 * 0.999;
    let seen = format!("{} of {}", n(offered), n(evidence.scheduled));
    checks.push(check("generator", None, "at least 99.9 % of the schedule offered", seen, broken(short, class)));
}

fn error_checks(evidence: &Evidence, checks: &mut Vec<Check>) {
    if let Some(why) = &evidence.broker_died {
        checks.push(check("error", Some("broker"), "the broker lives", why, Some(Status::Fail)));
    }
    if let Some(why) = &evidence.broker_silent {
        checks.push(check("error", Some("broker"), "the broker answers", why, Some(Status::Fail)));
    }
    if let Some(why) = &evidence.storage_full {
        checks.push(check("error", Some("broker"), "storage stays above its floor", why, Some(Status::Fail)));
    }
    for (role, why) in &evidence.consumers_died {
        checks.push(check("error", Some(role), "no consuming stage dies", why, Some(Status::Fail)));
    }
    let failed = broken(evidence.inference_failed > 0, Status::Fail);
    let seen = format!("{} failed", evidence.inference_failed);
    checks.push(check("error", None, "0 failed inferences", seen, failed));
    let commits = broken(evidence.commit_errors > 0, Status::Fail);
    checks.push(check("error", None, "0 commit errors", format!("{} errors", evidence.commit_errors), commits));
}

fn host_checks(evidence: &Evidence, checks: &mut Vec<Check>) {
    let step = evidence.wall_step_ns.abs();
    let limit = "wall clock steps by at most 10 ms";
    checks.push(check("clock", None, limit, ms(step), broken(step > 10_000_000, Status::Invalid)));
    let ram = broken(evidence.data_dir_ram, Status::Invalid);
    let seen = if evidence.data_dir_ram { "it is in RAM" } else { "it is not in RAM" };
    checks.push(check("storage", None, "the data directory is on a device", seen, ram));
    let limit = "device took at least 80 % of what the logs took in, after sync";
    checks.push(match evidence.device_and_log_bytes {
        Some((device, log)) => {
            let seen = format!("{:.1} of {:.1} MB", device as f64 / 1e6, log as f64 / 1e6);
            check("storage", None, limit, seen, broken((device as f64) < log as f64 * 0.8, Status::Invalid))
        }
        None => unknown("storage", limit, "device or log bytes cannot be read here"),
    });
    for (role, why) in &evidence.others_died {
        checks.push(check("environment", Some(role), "no generator dies", why, Some(Status::Invalid)));
    }
    let limit = format!("CPU steal at most {:.0} %", evidence.max_steal * 100.0);
    checks.push(match evidence.steal {
        Some(steal) => {
            let seen = format!("{:.1} %", steal * 100.0);
            check("environment", None, limit, seen, broken(steal > evidence.max_steal, Status::Invalid))
        }
        None => unknown("environment", &limit, "this host does not tell"),
    });
    if evidence.interrupted {
        checks.push(check("environment", None, "not interrupted", "interrupted", Some(Status::Invalid)));
    }
}

/// Least-squares slope of y over x and the half width of its 99 % interval; `None` for fewer than five points.
pub fn slope(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let n = points.len() as f64;
    if points.len() < 5 {
        return None;
    }
    let (mx, my) = (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
    let sxx: f64 = points.iter().map(|p| (p.0 - mx).powi(2)).sum();
    if sxx == 0.0 {
        return None;
    }
    let slope = points.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum::<f64>() / sxx;
    let residual: f64 = points.iter().map(|p| (p.1 - my - slope * (p.0 - mx)).powi(2)).sum();
    let error = (residual / (n - 2.0) / sxx).sqrt();
    Some((slope, student_t_99(points.len() - 2) * error))
}

/// Two-sided 99 % quantile of Student's t; tabulated, linear between entries.
fn student_t_99(degrees: usize) -> f64 {
    const TABLE: [(f64, f64); 9] = [
        (3.0, 5.841),
        (4.0, 4.604),
        (5.0, 4.032),
        (7.0, 3.499),
        (10.0, 3.169),
        (15.0, 2.947),
        (20.0, 2.845),
        (30.0, 2.750),
        (60.0, 2.660),
    ];
    let d = degrees as f64;
    let next = TABLE.iter().position(|(at, _)| *at >= d);
    match next {
        Some(0) => TABLE[0].1,
        Some(next) => {
            let ((x0, y0), (x1, y1)) = (TABLE[next - 1], TABLE[next]);
            y0 + (y1 - y0) * (d - x0) / (x1 - x0)
        }
        None => 2.66,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Evidence {
        Evidence {
            audit: Some(AuditCounts {
                offered: 1000,
                acked: 1000,
                delivered: 1000,
                identity_holds: true,
                ..Default::default()
            }),
            acks_all: true,
            idempotent: true,
            scheduled: 1000,
            offered_main: 1000,
            budget: 0.001,
            deadline_ns: 1_000_000_000,
            main_ns: 60_000_000_000,
            self_lags: vec![SelfLag { stage: "g".into(), p99_ns: Some(1_000_000), frame_period_ns: 41_000_000 }],
            device_and_log_bytes: Some((100, 100)),
            steal: Some(0.0),
            max_steal: 0.05,
            ..Evidence::default()
        }
    }

    fn status(change: impl Fn(&mut Evidence)) -> Status {
        let mut evidence = good();
        change(&mut evidence);
        judge(&evidence).status
    }

    fn audit(evidence: &mut Evidence) -> &mut AuditCounts {
        evidence.audit.as_mut().unwrap()
    }

    #[test]
    fn each_rule_alone_decides() {
        use Status::{Fail, Invalid, Pass};
        assert_eq!(status(|_| {}), Pass);
        assert_eq!(status(|e| audit(e).identity_holds = false), Fail);
        assert_eq!(status(|e| audit(e).corrupt = 1), Fail);
        assert_eq!(status(|e| audit(e).lost_acked = 1), Fail);
        assert_eq!(status(|e| audit(e).duplicates = 1), Fail);
        assert_eq!(status(|e| (audit(e).duplicates, e.idempotent) = (1, false)), Pass);
        assert_eq!(status(|e| e.chains_broken = 1), Fail);
        assert_eq!(status(|e| audit(e).in_flight = 1), Fail);
        assert_eq!(status(|e| e.unfinished = 1), Fail);
        assert_eq!(status(|e| e.late = 1), Pass);
        assert_eq!(status(|e| e.late = 2), Fail);
        assert_eq!(status(|e| e.offered_main = 0), Invalid);
        assert_eq!(status(|e| (e.late, e.closed_loop) = (900, true)), Pass);
        assert_eq!(status(|e| e.broker_silent = Some("no answer".into())), Fail);
        assert_eq!(status(|e| e.storage_full = Some("full".into())), Fail);
        assert_eq!(status(|e| e.lag_slopes = vec![("s".into(), 0.01, 0.001)]), Fail);
        assert_eq!(status(|e| e.lag_slopes = vec![("s".into(), 0.01, 0.02)]), Pass);
        assert_eq!(status(|e| e.lag_slopes = vec![("s".into(), 0.008, 0.001)]), Pass);
        assert_eq!(status(|e| e.broker_died = Some("killed".into())), Fail);
        assert_eq!(status(|e| e.consumers_died = vec![("c".into(), "killed".into())]), Fail);
        assert_eq!(status(|e| e.inference_failed = 1), Fail);
        assert_eq!(status(|e| e.commit_errors = 1), Fail);
        assert_eq!(status(|e| e.self_lags[0].p99_ns = Some(42_000_000)), Invalid);
        assert_eq!(status(|e| (e.self_lags[0].p99_ns, e.decode_under_test) = (Some(42_000_000), true)), Fail);
        assert_eq!(status(|e| e.self_lags[0].p99_ns = None), Invalid);
        assert_eq!(status(|e| e.self_lag_over = 2), Invalid);
        assert_eq!(status(|e| e.scheduled = 1002), Invalid);
        assert_eq!(status(|e| e.wall_step_ns = -11_000_000), Invalid);
        assert_eq!(status(|e| e.data_dir_ram = true), Invalid);
        assert_eq!(status(|e| e.device_and_log_bytes = Some((79, 100))), Invalid);
        assert_eq!(status(|e| e.device_and_log_bytes = None), Pass);
        assert_eq!(status(|e| e.others_died = vec![("g".into(), "killed".into())]), Invalid);
        assert_eq!(status(|e| e.steal = Some(0.06)), Invalid);
        assert_eq!(status(|e| e.interrupted = true), Invalid);
        assert_eq!(status(|e| (e.p99_limit_ns, e.p99_ns) = (Some(5), Some(6))), Fail);
        assert_eq!(status(|e| (e.p99_limit_ns, e.p99_ns) = (Some(5), None)), Invalid);
    }

    #[test]
    fn a_broken_audit_beats_an_invalid_environment_and_both_are_listed() {
        let mut evidence = good();
        audit(&mut evidence).corrupt = 3;
        evidence.interrupted = true;
        let verdict = judge(&evidence);
        assert_eq!(verdict.status, Status::Fail);
        assert_eq!(verdict.reasons.len(), 2);
        evidence.audit.as_mut().unwrap().corrupt = 0;
        audit(&mut evidence).in_flight = 3;
        let verdict = judge(&evidence);
        assert_eq!(verdict.status, Status::Invalid);
        assert!(verdict.reasons[0].starts_with("INVALID") && verdict.reasons[1].starts_with("FAIL"), "{verdict:?}");
    }

    #[test]
    fn a_death_of_the_system_under_test_excuses_missing_samples() {
        let mut evidence = good();
        evidence.self_lags[0].p99_ns = None;
        evidence.offered_main = 0;
        assert_eq!(judge(&evidence).status, Status::Invalid);
        evidence.broker_died = Some("killed".into());
        assert_eq!(judge(&evidence).status, Status::Fail);
    }

    #[test]
    fn the_slope_of_a_line_is_found_with_its_error() {
        let line: Vec<_> = (0..20).map(|x| (f64::from(x), 3.0 + 0.5 * f64::from(x))).collect();
        let (found, error) = slope(&line).unwrap();
        assert!((found - 0.5).abs() < 1e-12 && error < 1e-9);
        // Reference: y = 0,1,0,1,... over 0..9 has slope 1/33 and standard error 0.0616 (ordinary least squares).
        let noisy: Vec<_> = (0..10).map(|x| (f64::from(x), f64::from(x % 2))).collect();
        let (found, error) = slope(&noisy).unwrap();
        assert!((found - 1.0 / 33.0).abs() < 1e-12);
        assert!((error / 3.3873 - 0.0616).abs() < 0.002, "{error}");
        assert!(slope(&line[..4]).is_none());
    }
}
