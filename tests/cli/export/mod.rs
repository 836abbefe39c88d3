//! What leaves the event log for other programs: traces as OTLP/JSON, metrics as Prometheus reads them. And nothing
//! that was not asked for.

mod collector;
mod recorded;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use ensemble_core::message::TraceParent;
use serde_json::{Value, json};

use crate::bed::{Bed, SaidText as _, to_end, words};
use crate::mcp_client::Mcp;
use recorded::{BEGIN_MS, TRACE, write};

const GUIDE: &str = include_str!("../../../docs/guides/traces.md");

fn spans(requests: &[Value]) -> Vec<Value> {
    let scopes = requests.iter().flat_map(|request| request["resourceSpans"].as_array().unwrap());
    let scopes = scopes.flat_map(|resource| resource["scopeSpans"].as_array().unwrap());
    scopes.flat_map(|scope| scope["spans"].as_array().unwrap()).cloned().collect()
}

fn text<'a>(object: &'a Value, member: &str) -> &'a str {
    object[member].as_str().unwrap_or_default()
}

fn attribute(span: &Value, name: &str) -> String {
    let found = span["attributes"].as_array().unwrap().iter().find(|a| a["key"] == name);
    let value = found.map(|found| &found["value"]);
    let value = value.and_then(|value| value.as_object()?.values().next()?.as_str());
    value.unwrap_or_default().to_owned()
}

/// Each span as a line: what it is below, its name, its kind, its times, how it ended, its events.
fn lines(spans: &[Value]) -> Vec<String> {
    let names: BTreeMap<&str, String> = spans
        .iter()
        .map(|s| {
            let about = attribute(s, "messaging.message.id");
            (text(s, "spanId"), format!("{} {about}", text(s, "name")))
        })
        .collect();
    let line = |span: &Value| {
        let at = |member| text(span, member).parse::<u64>().unwrap() / 1_000_000 - BEGIN_MS;
        let parent = text(span, "parentSpanId");
        let parent = names.get(parent).map_or(parent, String::as_str);
        let events = span["events"].as_array().unwrap().iter();
        let events: Vec<&str> = events.map(|event| text(event, "name")).collect();
        let status = &span["status"];
        format!(
            "[{parent}] {} {} {}..{} {} {} {}: {}",
            names[text(span, "spanId")],
            span["kind"],
            at("startTimeUnixNano"),
            at("endTimeUnixNano"),
            attribute(span, "ensemble.outcome"),
            status["code"].as_u64().unwrap_or(0),
            text(status, "message"),
            events.join(" ")
        )
    };
    spans.iter().map(line).collect()
}

/// A log with every kind of span; see `recorded`.
fn bed() -> Bed {
    let bed = Bed::new();
    write(&bed.project().join(".ensemble/logs"));
    bed
}

#[test]
fn a_message_is_a_trace_and_its_attempts_deliveries_and_steps_are_spans() {
    let spans = spans(&bed().json("log export otlp"));
    assert_eq!(lines(&spans), recorded::SPANS);
    // The sender's trace continues, and a step belongs to the trace of the message that prompted it.
    let of = |name: &str| spans.iter().find(|span| text(span, "name") == name).unwrap();
    let of_message =
        |id| spans.iter().find(|s| attribute(s, "messaging.message.id") == id).unwrap();
    assert_eq!(text(of_message("m1"), "traceId"), TRACE);
    assert_eq!(text(of_message("m1"), "parentSpanId"), "b7ad6b7169203331");
    assert_eq!(text(of("step w1"), "parentSpanId"), text(of_message("m2"), "spanId"));
    // An unrelated message has its own trace, and a redriven one keeps its trace.
    let traces: BTreeSet<&str> = spans.iter().map(|span| text(span, "traceId")).collect();
    assert_eq!(traces.len(), 4, "{traces:?}");
}

#[test]
fn only_what_was_over_in_the_range_is_exported_with_the_same_ids_each_time() {
    let bed = bed();
    let ids = |line: &str| -> BTreeSet<String> {
        let spans = spans(&bed.json(&format!("log export otlp {line}")));
        spans.iter().map(|span| attribute(span, "messaging.message.id")).collect()
    };
    let names = |text: &str| text.split(' ').map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(ids("--session 20260115-093000 --unfinished"), names("m1 m2 m3 m4 m5 "));
    let later = "--session session-20260115-093000 --since 2026-01-15T09:37:00Z";
    assert_eq!(ids(later), names("m1 m3 m4 "));
    bed.fails(3, "log export otlp --session 20200101-000000");
    assert!(bed.ok("log export otlp --since 1s").is_empty());
    let once = bed.json("log export otlp --unfinished");
    assert_eq!(bed.json("log export otlp --unfinished"), once);
    let spans = spans(&once);
    let ids: BTreeMap<&str, &str> =
        spans.iter().map(|span| (text(span, "spanId"), text(span, "traceId"))).collect();
    assert_eq!(ids.len(), spans.len());
    for span in &spans {
        let parent = text(span, "parentSpanId");
        let is_remote = span["flags"] == 0x301;
        assert_eq!(is_remote, parent == "b7ad6b7169203331", "{span}");
        if !parent.is_empty() && !is_remote {
            assert_eq!(ids.get(parent), Some(&text(span, "traceId")), "{span}");
        }
        assert!(text(span, "endTimeUnixNano") >= text(span, "startTimeUnixNano"), "{span}");
    }
}

#[test]
fn every_name_is_in_the_guide_and_pinned_to_a_version_of_the_conventions() {
    let requests = bed().json("log export otlp --unfinished");
    let schema = text(&requests[0]["resourceSpans"][0], "schemaUrl").to_owned();
    assert_eq!(schema, "https://opentelemetry.io/schemas/1.42.0");
    assert_eq!(text(&requests[0]["resourceSpans"][0]["scopeSpans"][0], "schemaUrl"), schema);
    assert!(GUIDE.contains(&schema), "the guide names another version");
    let mut names = BTreeSet::new();
    for span in spans(&requests) {
        names.insert(text(&span, "name").split(' ').next().unwrap().to_owned());
        let keys = |of: &Value| -> Vec<String> {
            let all = of["attributes"].as_array().unwrap().iter();
            all.map(|attribute| text(attribute, "key").to_owned()).collect()
        };
        names.extend(keys(&span));
        for event in span["events"].as_array().unwrap() {
            names.extend(keys(event));
        }
    }
    let names = names.into_iter().map(|name| match name.strip_prefix("ensemble.data.") {
        Some(_) => "ensemble.data.<member>".to_owned(),
        None => name,
    });
    for name in names {
        assert!(GUIDE.contains(&format!("`{name}")), "the guide does not explain `{name}`");
    }
}

#[test]
fn metrics_count_what_the_log_tells_and_their_file_is_replaced_whole() {
    let bed = bed();
    let printed = bed.ok("log export prometheus");
    for line in recorded::METRICS {
        assert!(printed.lines().any(|printed| printed == line), "{line}\n{printed}");
    }
    bed.send("one that waits");
    let printed = bed.ok("log export prometheus");
    printed.has(["ensemble_mailbox_messages{mailbox=\"w1\",state=\"queued\"} 1\n"]);
    let sample = json!({
        "name": "ensemble_nudges_total", "type": "counter",
        "labels": { "agent": "w1", "result": "sent" }, "value": 1.0,
    });
    assert!(bed.json("log export prometheus").contains(&sample));
    for name in printed.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = name.split(' ').next().unwrap();
        assert!(GUIDE.contains(&format!("`{name}`")), "the guide does not explain `{name}`");
    }
    let file = bed.project().join("ensemble.prom");
    fs::write(&file, "before").unwrap();
    assert_eq!(bed.ok("log export prometheus -o ensemble.prom"), "");
    let device = bed.project().join("device");
    std::os::unix::fs::symlink("/dev/null", &device).unwrap();
    for line in ["log export prometheus -o device", "log report -o device"] {
        bed.ok(line);
        assert!(device.is_symlink(), "{line}: a device is written to, not replaced");
    }
    let said = bed.object("log export prometheus -o ensemble.prom");
    assert_eq!(said["bytes"], fs::metadata(&file).unwrap().len());
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
    fs::read_to_string(&file).unwrap().finishes("ensemble_build_info{version=\"0.1.0\"} 1\n");
}

/// OpenTelemetry's own variables alone send nothing.
#[test]
fn nothing_is_sent_unless_an_address_is_named() {
    let bed = bed();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    for line in ["send --to w1 -m x", "recv --as w1", "log export otlp", "log export prometheus"] {
        let mut command = bed.command(&words(line));
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &url).env("OTEL_TRACES_EXPORTER", "otlp");
        assert_eq!(to_end(&mut command).code, 0, "{line}");
    }
    assert!(listener.accept().is_err(), "something has connected");
    drop(listener);
    let said = bed.fails(75, &format!("log export otlp --endpoint {url}"));
    said.has(["does not answer", "a span keeps its ids"]);
    bed.fails(2, "log export otlp --endpoint localhost:4318");
    bed.fails(2, "log export otlp --follow");
}

#[test]
fn a_trace_is_carried_from_every_door_to_the_holder_and_into_the_log() {
    let bed = Bed::new();
    let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
    let sends: [(&[&str], Option<&str>, bool); 4] = [
        (&["send", "--to", "w1", "-m", "flag", "--traceparent", &parent], Some("00-bad"), true),
        (&["send", "--to", "w1", "-m", "environment"], Some(&parent), true),
        (&["send", "--to", "w1", "-m", "invalid"], Some("00-bad"), false),
        (&["send", "--to", "w1", "-m", "none"], None, false),
    ];
    for (args, around, is_carried) in sends {
        let mut command = bed.command(args);
        command.envs(around.map(|around| ("TRACEPARENT", around)));
        assert_eq!(to_end(&mut command).code, 0);
        let got = bed.object("recv --as w1");
        let carried = got["traceparent"].as_str();
        assert_eq!(carried, is_carried.then_some(parent.as_str()), "{args:?}");
        bed.ok(&format!("settle --as w1 {}", text(&got, "id")));
    }
    assert!(bed.fails(2, "send --to w1 -m x --traceparent 00-bad").contains("W3C traceparent"));
    let mut mcp = Mcp::of(&bed, "lead");
    mcp.call("send", &json!({ "to": "w1", "message": "x", "traceparent": parent }));
    assert_eq!(bed.object("recv --as w1")["traceparent"], json!(parent));
    let stored = bed.json("log --type message.stored");
    let logged: Vec<Option<&str>> =
        stored.iter().map(|record| record["data"]["traceparent"].as_str()).collect();
    let parent = Some(parent.as_str());
    assert_eq!(logged, [parent, parent, None, None, parent]);
}

#[test]
fn only_what_the_recommendation_allows_is_a_traceparent() {
    let span = "b7ad6b7169203331";
    let read = |text: &str| text.parse::<TraceParent>().ok().map(|it| it.as_str().to_owned());
    let known = format!("00-{TRACE}-{span}-01");
    assert_eq!(read(&known), Some(known));
    // A later version may say more.
    assert_eq!(read(&format!("cc-{TRACE}-{span}-01-a-b")), Some(format!("cc-{TRACE}-{span}-01")));
    for bad in [
        String::new(),
        format!("00-{TRACE}-{span}"),
        format!("00-{TRACE}-{span}-01-more"),
        format!("ff-{TRACE}-{span}-01"),
        format!("00-{}-{span}-01", TRACE.to_uppercase()),
        format!("00-{}-{span}-01", "0".repeat(32)),
        format!("00-{TRACE}-{}-01", "0".repeat(16)),
        format!("00-{TRACE}-{span}-1"),
        format!("00-+{}-{span}-01", &TRACE[1..]),
    ] {
        assert_eq!(read(&bad), None, "{bad}");
    }
}
