//! Fields of files as people and models write them: which name means which field, and whom a text names. The router, the
//! contracts and the readers of acks ask here, so that a field means the same to each of them.

use serde_json::{Map, Value};

use super::Name;

/// The names of the field with the task of a report.
pub const TASK_FIELDS: [&str; 3] = ["task_id", "task", "taskid"];
/// The same of a task itself.
pub const TASK_ID_FIELDS: [&str; 2] = ["id", "task_id"];
/// The names of the field with the agent that answers for a report.
pub const WORKER_FIELDS: [&str; 5] = ["worker_id", "worker", "workerid", "agent", "agent_id"];
/// The same with the agent that has done the work.
pub const EXECUTOR_FIELDS: [&str; 2] = ["executed_by", "executor"];
/// The same with the agent that has reviewed it.
pub const REVIEWER_FIELDS: [&str; 2] = ["reviewer", "reviewed_by"];

/// Names of fields in Japanese and Chinese, without `ID` behind them, and the field that each one means.
const FOREIGN_FIELDS: [(&[&str], &str); 12] = [
    (&["タスク", "课题", "任务", "任務"], "task_id"),
    (&["ステータス", "状態", "結果", "状态", "结果", "狀態"], "status"),
    (&["担当", "担当者", "作業者", "ワーカー", "执行者", "执行人", "负责人"], "worker_id"),
    (&["概要", "要約", "まとめ", "サマリー", "摘要", "总结", "概述"], "summary"),
    (&["失敗理由", "失敗の理由", "理由", "原因", "失败原因"], "failure_reason"),
    (&["変更ファイル", "変更したファイル", "修改文件", "修改的文件"], "files_modified"),
    (&["作成ファイル", "作成したファイル", "新建文件", "创建的文件"], "files_created"),
    (&["エラー", "错误"], "errors"),
    (&["テスト結果", "测试结果"], "test_results"),
    (&["レビュアー", "レビュー担当", "评审人", "审查者"], "reviewer"),
    (&["指摘", "指摘事項", "问题"], "findings"),
    (&["指示", "作業内容", "指令"], "instruction"),
];

/// Names of one argument, of which each tool and command has one. Models and programs use the others as well.
const ARGUMENT_NAMES: [&[&str]; 9] = [
    &["message", "text", "instruction", "body", "content"],
    &["to", "recipient", "worker", "agent", "name", "mailbox"],
    &["id", "message_id"],
    &["task_id", "task"],
    &["request_id", "request", "correlation_id", "correlation"],
    &["reason", "feedback", "failure_reason", "note", "comment"],
    &["status", "result"],
    &["files_modified", "modified"],
    &["files_created", "created"],
];
/// Names of ids. A tool or command with one of them understands all.
const ID_NAMES: [&str; 7] =
    ["id", "message_id", "task_id", "task", "request_id", "request", "correlation_id"];

/// The known argument that a name means: `taskId` and `task` for `task_id`, `timeout` for `timeout_seconds`.
fn argument_name(given: &str, is_known: &dyn Fn(&str) -> bool) -> Option<String> {
    let plain = plain_field(given);
    let other = || {
        let group = ARGUMENT_NAMES.iter().find(|names| names.contains(&&*plain))?;
        group.iter().find(|name| is_known(name)).map(|name| (*name).to_owned())
    };
    let only_id = || {
        let mut known = ID_NAMES.iter().filter(|name| is_known(name));
        let only = known.next().filter(|_| ID_NAMES.contains(&&*plain))?;
        known.next().is_none().then(|| (*only).to_owned())
    };
    let named = [given.to_owned(), plain.clone()].into_iter().find(|name| is_known(name));
    let seconds = || Some(plain.clone() + "_seconds").filter(|name| is_known(name));
    named.or_else(other).or_else(only_id).or_else(seconds)
}

/// Arguments under the names that are known. Of two spellings of one argument, the other stays unknown.
pub fn with_known_names(
    given: &Map<String, Value>,
    is_known: &dyn Fn(&str) -> bool,
) -> Map<String, Value> {
    let mut read = Map::new();
    for (name, value) in given {
        let is_free = |name: &String| !given.contains_key(name) && !read.contains_key(name);
        let known = argument_name(name, is_known).filter(is_free);
        read.insert(known.unwrap_or_else(|| name.clone()), value.clone());
    }
    read
}

/// A field's name in the form in which names are compared: `taskId`, `task-id`, `Task_ID`, `**Task ID**` and `タスクID`
/// become `task_id`.
pub fn plain_field(name: &str) -> String {
    let name = name.trim_matches(|c: char| c.is_whitespace() || matches!(c, '*' | '`'));
    if !name.is_ascii() {
        let stem = name.trim_end_matches(|c: char| c.is_ascii() || c.is_whitespace());
        let field = FOREIGN_FIELDS.iter().find(|(names, _)| names.contains(&stem));
        if let Some((_, field)) = field {
            return (*field).to_owned();
        }
    }
    let mut out = String::with_capacity(name.len() + 4);
    let mut was_lower = false;
    for c in name.chars() {
        if matches!(c, '-' | ' ' | '_') {
            out.push('_');
        } else {
            if c.is_uppercase() && was_lower {
                out.push('_');
            }
            out.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase() || c.is_ascii_digit();
    }
    out
}

/// Quotes as keyboards, editors and languages write them, and the byte order mark.
const QUOTES: [char; 14] =
    ['"', '\'', '`', '\u{feff}', '“', '”', '„', '‘', '’', '«', '»', '「', '」', '＂'];

/// A value without the blanks, quotes and byte order mark around it: they are only how it was written, at each door.
pub fn strip_quotes(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || QUOTES.contains(&c))
}

/// A name or a word without what it is wrapped in: quotes on both sides, and `Some(…)` of a program's debug output.
pub fn unwrap_value(text: &str) -> &str {
    let text = text.trim();
    let quoted = text.strip_prefix(QUOTES).and_then(|rest| rest.strip_suffix(QUOTES));
    let some = || text.strip_prefix("Some(").and_then(|rest| rest.strip_suffix(')'));
    quoted.or_else(some).map_or(text, unwrap_value)
}

/// Whether a text says that there is no value, as programs and people write it.
pub fn is_absent(text: &str) -> bool {
    let absent = ["", "none", "null", "nil", "n/a", "undefined", "-", "--", "~", "なし", "无"];
    absent.contains(&&*strip_quotes(text).to_lowercase())
}

/// A task in the form in which tasks are compared: quotes, a `#` in front and the case do not count.
pub fn plain_task(text: &str) -> String {
    strip_quotes(text).trim_start_matches('#').to_lowercase()
}

/// Whether two texts name one task, as people and models write it.
pub fn is_same_task(one: &str, other: &str) -> bool {
    one == other || plain_task(one) == plain_task(other)
}

/// A switch as people and models write it; `None` if the text is not one.
pub fn read_flag(text: &str) -> Option<bool> {
    match &*strip_quotes(text).to_ascii_lowercase() {
        "true" | "yes" | "y" | "on" | "1" | "1.0" | "はい" | "是" => Some(true),
        "false" | "no" | "n" | "off" | "0" | "0.0" | "いいえ" | "否" => Some(false),
        _ => None,
    }
}

/// The same of a field's value, which may be a text, a number or a truth value.
pub fn flag_of(value: &Value) -> Option<bool> {
    read_flag(&scalar_text(value)?)
}

/// The first of these fields that has a text, a number or a truth value, perhaps alone in a list, as text.
pub fn field_text(fields: &Value, names: &[&str]) -> Option<String> {
    let fields = fields.as_object()?;
    names.iter().find_map(|name| {
        let mut values = fields.iter().filter(|(field, _)| plain_field(field) == *name);
        values.find_map(|(_, value)| scalar_text(value))
    })
}

fn scalar_text(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => strip_quotes(unwrap_value(text)).to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Array(items) if items.len() == 1 => return scalar_text(&items[0]),
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    (!is_absent(&text)).then_some(text)
}

/// The fields that may name the author of a file whose messages have this type, best first. A task and an escalation
/// name a worker as well, who has not written them.
pub fn author_fields(kind: Option<&str>) -> Vec<&'static str> {
    let work = [&WORKER_FIELDS[..], &EXECUTOR_FIELDS];
    match kind {
        Some("task" | "report.escalation") => vec!["from", "escalated_by", "created_by"],
        Some("report.review") => [&REVIEWER_FIELDS[..], work[0], work[1], &["from"]].concat(),
        _ => [work[0], work[1], &REVIEWER_FIELDS, &["from"]].concat(),
    }
}

/// The agent that a text names: seed 002's workers are numbers, and `1` is `worker-1`. Quotes around it do not count.
pub fn agent_of_text(text: &str) -> Option<Name> {
    let text = bare(text);
    Name::new(if is_number(text) { format!("worker-{text}") } else { text.to_owned() }).ok()
}

/// The same among the names of mailboxes, in any case.
pub fn agent_among<'a>(text: &str, mailboxes: &'a [Name]) -> Option<&'a Name> {
    let text = bare(text);
    let find = |name: &str| mailboxes.iter().find(|it| it.as_str().eq_ignore_ascii_case(name));
    find(text).or_else(|| find(&format!("worker-{text}")).filter(|_| is_number(text)))
}

fn bare(text: &str) -> &str {
    let is_mark = |c: char| c.is_whitespace() || ['.', '!', ',', '@'].contains(&c);
    unwrap_value(text).trim_matches(|c| is_mark(c) || QUOTES.contains(&c))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_is_found_by_each_of_its_spellings() {
        for fields in [
            json!({ "task_id": "7" }),
            json!({ "taskId": 7 }),
            json!({ "Task-ID": " 7 " }),
            json!({ "task_id": null, "task": "7" }),
            json!({ "task_id": "", "taskId": 7 }),
            json!({ "task_id": [7] }),
            json!({ "task_id": "None", "task": "Some(\"7\")" }),
            json!({ "タスクID": "“7”" }),
            json!({ "任务 ID": "「7」" }),
            json!({ "**Task ID**": "`7`" }),
        ] {
            assert_eq!(field_text(&fields, &TASK_FIELDS).as_deref(), Some("7"), "{fields}");
        }
        for absent in [json!([7, 8]), json!("n/a"), json!("-"), json!("なし"), json!("nil")] {
            assert_eq!(field_text(&json!({ "task_id": absent }), &TASK_FIELDS), None);
        }
    }

    #[test]
    fn an_agent_is_named_by_name_or_number_in_any_case() {
        let mailboxes = ["worker-1", "Cora"].map(|name| Name::new(name).unwrap());
        let among = |text| agent_among(text, &mailboxes).map(Name::as_str);
        for text in
            ["worker-1", "Worker-1", "1", "\"worker-1\"", "@worker-1", " `1` ", "Some(“1”)", "1."]
        {
            assert_eq!(among(text), Some("worker-1"), "{text:?}");
        }
        assert_eq!((among("CORA"), among("2"), among("")), (Some("Cora"), None, None));
        assert_eq!(agent_of_text(" 3").unwrap().as_str(), "worker-3");
        assert_eq!(agent_of_text("../x"), None);
    }
}
