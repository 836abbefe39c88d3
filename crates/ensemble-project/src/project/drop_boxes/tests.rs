use super::super::ProjectConfig;
use super::table::*;
use ensemble_core::dropbox::{PathPattern, RouteRule};
use ensemble_core::message::{Name, yaml};

fn rule(text: &str) -> BoxRule {
    yaml::parse(text, "t.yaml".as_ref()).unwrap()
}

fn route(pattern: &str, to: &[&str]) -> RouteRule {
    let to = to.iter().map(|it| (*it).to_owned()).collect();
    RouteRule { pattern: pattern.to_owned(), to, kind: Name::new("k").unwrap() }
}

fn table(boxes: &[&str]) -> BoxTable {
    BoxTable::new(&boxes.iter().map(|it| rule(it)).collect::<Vec<_>>()).unwrap()
}

#[test]
fn a_box_that_cannot_be_watched_is_refused_by_its_field() {
    for (text, field, why) in [
        ("name: reports", "name", "built in: `routes` says"),
        ("name: ACK", "name", "built in"),
        ("name: first", "name", "twice"),
        ("name: mailbox", "name", "other files of the queue"),
        ("{name: a, directory: tmp}", "directory", "other files of the queue"),
        ("{name: a, directory: ../out}", "directory", "one directory below the queue"),
        ("{name: a, directory: /etc}", "directory", "one directory below the queue"),
        ("{name: a, directory: a/b}", "directory", "one directory below the queue"),
        ("{name: a, directory: First}", "directory", "directory of the drop box `first`"),
        ("{name: a, directory: tasks}", "directory", "directory of the drop box `tasks`"),
        ("{name: a, directory: .}", "directory", "an extension"),
        ("{name: a, directory: ., files: \"s*\"}", "directory", "an extension"),
        ("{name: a, directory: ., files: \"*.json\"}", "directory", "`calendar.json`"),
        ("{name: a, files: \"\"}", "files", "has 0 bytes"),
        ("{name: a, files: \"x/*\"}", "files", "without `/`"),
        ("{name: a, files: \"*.tmp\"}", "files", "may still write it"),
        ("{name: a, files: \".*\"}", "files", "may still write it"),
        ("{name: a, to: [x]}", "type", "is missing"),
        ("{name: a, type: note}", "to", "is empty"),
        ("{name: a, to: [\"{2}\"], files: \"*.md\", type: note}", "to", "cannot be a mailbox"),
        ("{name: a, to: [\"a b\"], type: note}", "to", "cannot be a mailbox"),
        ("{name: a, to: [Watcher], type: note}", "to", "is a reserved name"),
    ] {
        let refusal = table(&["name: first"]).add(&rule(text)).unwrap_err();
        assert_eq!(refusal.field, field, "{text}: {refusal:?}");
        assert!(refusal.detail.contains(why), "{text}: {refusal:?}");
    }
    for unreadable in
        ["{name: ../a}", "{name: a, path: b}", "{directory: a}", "{name: a, files: [b]}"]
    {
        let read = yaml::parse::<BoxRule>(unreadable, "t.yaml".as_ref());
        assert!(read.is_err(), "{unreadable}");
    }
    let many: Vec<BoxRule> = (0..=BOXES_MAX).map(|n| rule(&format!("name: b{n}"))).collect();
    assert!(BoxTable::new(&many[1..]).is_ok());
    let error = BoxTable::new(&many).unwrap_err().to_string();
    assert_eq!(error, "drop_boxes: [32].name: there are more than 32 drop boxes");
}

#[test]
fn a_route_from_a_place_that_is_not_watched_is_refused() {
    let table = table(&["{name: reviews, directory: checked, files: \"*.yaml\"}"]);
    for (pattern, why) in [
        (
            "nowhere",
            "is not below a drop box: begin it with one of `reports/`, `tasks/`, `reviews/`",
        ),
        ("inbox/*.yaml", "`inbox/` is not watched: add `{name: inbox}` to `drop_boxes`"),
        ("checked/*.yaml", "`checked/` is not watched"),
        ("*/a.yaml", "`*/` is not watched"),
        ("reports/a/*.yaml", "directories below it are not watched"),
        ("reports/", "names no file"),
        ("ack/*.ack", "files in `ack/` are not routed"),
        ("reports/*.tmp", "may still write it"),
        ("reviews/*.md", "no file matches both `*.md` and the pattern `*.yaml`"),
    ] {
        let refusal = table.check(&route(pattern, &["x"])).unwrap_err();
        assert_eq!(refusal.field, "match");
        assert!(refusal.detail.contains(why), "{pattern}: {refusal:?}");
        assert!(table.routes(&[route(pattern, &["x"])]).is_err());
    }
    assert_eq!(table.check(&route("reports/*", &[])).unwrap_err().field, "to");
    assert_eq!(table.check(&route("reports/*", &["{2}"])).unwrap_err().field, "to");
    assert_eq!(table.check(&route("reviews/t-*", &["{1}"])), Ok(()));
}

#[test]
fn two_patterns_overlap_if_some_name_matches_both() {
    for (one, other, is_so) in [
        ("*", "a.yaml", true),
        ("*.yaml", "task-*", true),
        ("task-*.yaml", "*-review.yaml", true),
        ("a*", "b*", false),
        ("*.md", "*.yaml", false),
        ("a.yaml", "a.yaml", true),
        ("a.yaml", "a.yml", false),
        ("a*c", "ab", false),
        ("*a*b*", "b*a", true),
        ("**", "x", true),
    ] {
        let (one, other) = (PathPattern::new(one), PathPattern::new(other));
        assert_eq!((overlap(&one, &other), overlap(&other, &one)), (is_so, is_so), "{one} {other}");
    }
}

#[test]
fn routes_of_the_configuration_come_before_those_of_boxes() {
    let reviews = "{name: reviews, files: \"*.yaml\", to: [\"{1}\", audit], type: report.review}";
    let table =
        table(&[reviews, "{name: root, directory: ., files: \"*.yaml\", to: [x], type: note}"]);
    let routes = table.routes(&[route("reviews/first-*", &["lead"])]).unwrap();
    let to = |path: &str| -> Option<(String, String)> {
        let found = routes.destination(path).unwrap()?;
        let to: Vec<&str> = found.to.iter().map(Name::as_str).collect();
        Some((to.join(" "), found.kind.to_string()))
    };
    let is = |to: &str, kind: &str| Some((to.to_owned(), kind.to_owned()));
    assert_eq!(to("reviews/first-1.yaml"), is("lead", "k"));
    assert_eq!(to("reviews/t1.yaml"), is("t1 audit", "report.review"));
    assert_eq!(to("reviews/t1.md"), None);
    assert_eq!(to("root/summary.yaml"), is("x", "note"));
    assert_eq!(to("reports/t-completed.yaml"), is("dispatch", "report.completed"));
    let rules = [route("reviews/first-*", &["lead"])];
    assert_eq!(
        table.directories_of("report.review", &rules).into_iter().collect::<Vec<_>>(),
        ["reviews"]
    );
    assert_eq!(table.directories_of("note", &[]).into_iter().collect::<Vec<_>>(), ["."]);
    let spec = table.get("root").unwrap();
    assert_eq!((spec.directory(), spec.takes("a.yaml"), spec.takes("tmp")), (None, true, false));
    assert_eq!(spec.shown(), "the queue itself");
}

fn parse(text: &str) -> Result<ProjectConfig, String> {
    ProjectConfig::parse(text, "ensemble.yaml".as_ref()).map_err(|error| error.to_string())
}

#[test]
fn a_route_or_a_box_that_cannot_work_is_refused_with_its_line() {
    for (text, told) in [
        (
            "# mine\nroutes:\n  - match: reports/*.md\n    to: [docs]\n    type: note\n  - to: [lead]\n    type: note\n    match: reviews/*.yaml\n",
            "ensemble.yaml: line 8, routes[1].match: `reviews/` is not watched: add `{name: reviews}` to `drop_boxes`, or begin the pattern with one of `reports/`, `tasks/`",
        ),
        (
            "drop_boxes:\n  - name: reviews\n    files: '*.yaml'\nroutes:\n  - {match: reviews/*.md, to: [lead], type: note}\n",
            "ensemble.yaml: line 5, routes[0].match: no file matches both `*.md` and the pattern `*.yaml` of the drop box `reviews`: change one of them",
        ),
        (
            "drop_boxes:\n  - name: reviews\n  - name: checked\n    directory: reviews\n",
            "ensemble.yaml: line 4, drop_boxes[1].directory: `reviews/` is the directory of the drop box `reviews`: each has its own",
        ),
        (
            "drop_boxes:\n  - name: reviews\n    to: [lead]\n",
            "ensemble.yaml: line 2, drop_boxes[0].type: is missing: say which type the messages to `to` have",
        ),
        (
            "routes: [{match: 'reports/*.md', to: ['{3}'], type: note}]\n",
            "ensemble.yaml: line 1, routes[0].to: `{3}` cannot be a mailbox",
        ),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.starts_with(told), "{error}");
    }
    for (text, place) in [
        ("drop_boxes: reviews\n", "line 1"),
        ("drop_boxes:\n  - name: ../x\n", "line 2"),
        ("drop_boxes:\n  - name: x\n    file: '*'\n", "`file`"),
        ("drop_boxes:\n  - directory: x\n", "`name`"),
        ("routes:\n  - {match: 'reports/*', to: [x], type: 'a b'}\n", "line 2"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.starts_with("ensemble.yaml: ") && error.contains(place), "{error}");
    }
}

#[test]
fn the_boxes_of_the_user_come_behind_those_of_the_project() {
    let project = parse("drop_boxes: [{name: a, directory: one}]\n").unwrap();
    let user = parse("drop_boxes: [{name: A}, {name: b, directory: One}, {name: c}]\n").unwrap();
    let names: Vec<String> =
        project.or(user).drop_boxes.iter().map(|it| it.name.to_string()).collect();
    assert_eq!(names, ["a", "c"]);
}
