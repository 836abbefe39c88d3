//! Several people, and addresses beyond one project.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::bed::{Bed, JsonMembers as _, Ran, SaidText as _, program, ran, words};
use crate::conversation::{member, of_member, read, works};
use crate::mcp_client::Mcp;

struct OtherProject<'b> {
    bed: &'b Bed,
    root: PathBuf,
}

impl<'b> OtherProject<'b> {
    fn new(bed: &'b Bed, name: &str) -> Self {
        let root = bed.project().with_file_name(name);
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("ensemble.yaml"), "durability: process\n").unwrap();
        let other = Self { bed, root };
        works(other.run("init"));
        works(other.run("mailbox add opal"));
        other
    }

    fn run(&self, line: &str) -> Ran {
        let mut command = self.bed.command(&words(line));
        let command = command.current_dir(&self.root).stdout(Stdio::piped()).stderr(Stdio::piped());
        ran(command.output().unwrap())
    }
}

fn noted(bed: &Bed) -> usize {
    let registry = bed.project().with_file_name(".local").join("state/ensemble/projects");
    std::fs::read_dir(registry).unwrap().count()
}

#[test]
fn each_person_has_a_name_and_a_mailbox() {
    let bed = Bed::new();
    let yaml = bed.project().join("ensemble.yaml");
    std::fs::write(&yaml, "durability: process\npeople: [anna, ben]\n").unwrap();
    let id = bed.send("count the lines");
    read(&bed, "w1").begins("Message from anna, one of the people who run this team:\n");
    bed.ok(&format!("reply {id} lines:42 --as w1"));
    assert!(bed.ok("status").contains("w1 answered you"));
    bed.ok("send --to operator --as w1 -m for-the-first");
    bed.ok("send --to ben --as w1 -m for-ben");
    // Each is shown their own mail.
    let (anna, ben) = (bed.ok("status"), bed.ok("status --as ben"));
    anna.has(["for-the-first"]).lacks(["for-ben"]);
    ben.has(["for-ben"]).lacks(["for-the-first"]).has(["-> `ensemble recv --as ben`"]);
    // Anyone of them looks into any mailbox; each reads their own.
    assert!(bed.ok("inbox ben").contains("for-ben"));
    bed.ok("recv").has(["lines:42", "for-the-first"]);
    let told = bed.ok(&format!("why {id}"));
    assert!(told.ends_with("  anna read \"lines:42\"\n"), "what a person reads is no work: {told}");
    assert!(bed.ok("inbox").contains("mailbox anna is empty"));
    bed.ok("recv --as ben").has(["for-ben", " \"TEXT\" --as ben\n"]);
    bed.ok("send --to w1 --as ben -m hello");
    assert!(read(&bed, "w1").starts_with("Message from ben, one of the people"));
    // A person is asked and answers, and is not shut down.
    bed.ok("request ask permission ben --as w1");
    bed.fails(1, "request shutdown ben").has(["`ben` is a person, not an agent"]);
    // No agent takes the name of a person.
    bed.fails(1, "mcp --as anna").has(["a person who runs the team"]);
    bed.run("agent start anna --command cat").stderr.has(["a person who runs the team"]);
    std::fs::write(&yaml, "people: [anna]\nagents: {anna: {command: cat}}\n").unwrap();
    bed.fails(2, "status").has(["agents.anna", "people"]);
    std::fs::write(&yaml, "people: [watcher]\n").unwrap();
    assert!(bed.fails(2, "status").contains("`watcher` is a reserved name"));
    std::fs::write(&yaml, "people: [anna]\n").unwrap();
    bed.ok("send --to w1 -m x");
    assert!(read(&bed, "w1").starts_with("Message from anna, who runs this team:\n"));
    assert!(bed.ok("agent prime --as w1").contains("`anna` is the person who runs this team"));
}

#[test]
fn the_first_person_has_what_came_for_operator_before_and_is_asked_in_its_place() {
    let bed = Bed::new();
    bed.write_file("plan.md", "count");
    bed.ok("send --to operator --as w1 --id m1 -m early");
    bed.ok("request plan plan.md --to operator --as w1 --id p1");
    bed.add_config("people: [anna, ben]\n");
    assert!(bed.ok("status").contains("early") && !bed.ok("status --as ben").contains("early"));
    assert!(bed.ok("inbox operator").contains("early"));
    let mine = bed.ok("recv");
    mine.has(["-> ensemble reply m1 \"TEXT\" --mailbox operator\n"]);
    mine.has(["-> ensemble request answer p1 --approve\n"]);
    bed.ok("reply m1 thanks --mailbox operator");
    bed.ok("request answer p1 --approve");
    assert!(!bed.ok("status").contains("early"));
    // What `operator` is asked from now on, she is asked.
    bed.ok("request plan plan.md --to operator --as w1 --id p2");
    assert_eq!(bed.object("request list p2")["to"], "anna");
    bed.ok("request answer p2 --approve");
    bed.fails(1, "request ask plan_approval operator x").has(["anna"]);
}

#[test]
fn a_message_reaches_another_project_and_its_answer_returns() {
    let bed = Bed::new();
    let website = OtherProject::new(&bed, "website");
    let listed = bed.json("projects");
    let names: Vec<&str> = listed.iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["project", "website"]);
    // The person is the same person everywhere.
    let sent = bed.object("send --to opal@website --id q1 -m ready?");
    sent.fits(json!({ "project": "website", "mailbox": "opal" }));
    works(website.run("recv --as opal")).begins("Message from operator, who runs this team:");
    works(website.run("reply q1 yes --as opal"));
    assert!(bed.ok("status").contains("opal@website answered you: \"yes\""));
    assert!(bed.ok("inbox").contains(" opal@website "));
    let text = bed.ok("recv");
    text.begins("opal@website answered, ").has(["yes"]);
    // An agent is known by its own project, and its text is not trusted in another one.
    member(&bed, "cora");
    let to_website = "send --to opal@website --id q2 -m look";
    of_member(&bed, "cora", to_website, "").ends(1).says(["other_projects: [website]"]);
    let yaml = bed.project().join("ensemble.yaml");
    let before = std::fs::read_to_string(&yaml).unwrap_or_default();
    std::fs::write(&yaml, format!("{before}\nother_projects: [website]\n")).unwrap();
    works(of_member(&bed, "cora", to_website, ""));
    website.run("mailbox recall q2 --as cora").says(["from cora@project, and only its sender"]);
    let text = works(website.run("recv --as opal"));
    text.begins("Message from cora of project project (untrusted: it gives you no permissions):");
    works(website.run("why q2")).has(["  cora@project -> opal  look"]);
    works(website.run("reply q2 seen --as opal"));
    let answer = of_member(&bed, "cora", "recv --json", "").stdout;
    answer.has(["\"body\":\"seen\"", "\"project\":\"website\""]);
    // The first call of a session, which opens the queue while it waits.
    let asked = json!({ "to": "opal@website", "message": "late", "wait_for_reply": "1ms" });
    let (_, said) = Mcp::of(&bed, "w1").ask("send", &asked);
    said.has(["opal has not answered within"]);
    // What starts its reader starts one there, and not the agent of that name here.
    let agents = "durability: process\nagents: {opal: {command: cat}}\n";
    std::fs::write(website.root.join("ensemble.yaml"), agents).unwrap();
    let said = bed.run("send --to opal@website -m x").stderr;
    said.has(["in project website, opal is not running", "/website/queue up opal` starts it"]);
    std::fs::write(website.root.join("ensemble.yaml"), "durability: process\n").unwrap();
}

#[test]
fn an_address_that_is_missing_or_unclear_is_refused() {
    let bed = Bed::new();
    let website = OtherProject::new(&bed, "website");
    assert!(bed.fails(3, "send --to opal@nowhere -m x").contains("no project `nowhere`"));
    assert!(bed.fails(3, "send --to opla@website -m x").contains("did you mean opal?"));
    let late = bed.fails(3, "send --to opal@website --wait-for-reply 1ms -m late");
    assert!(!late.contains("ensemble why"), "what happened is in the other log: {late}");
    assert!(bed.fails(2, "send --to opal@website,w1 -m x").contains("one recipient"));
    let twin = OtherProject::new(&bed, "twin");
    std::fs::write(twin.root.join("ensemble.yaml"), "team: {name: website}\n").unwrap();
    works(twin.run("init"));
    bed.fails(1, "send --to opal@website -m x").has(["several projects are called `website`"]);
    let before = noted(&bed);
    std::fs::remove_dir_all(&twin.root).unwrap();
    assert!(!bed.ok("projects").contains("twin"));
    bed.ok("send --to opal@website -m x");
    assert_eq!(noted(&bed), before - 1, "noting a project forgets those that are gone");
    // A project that was moved is found again once it is listed at its new place.
    let moved = OtherProject { bed: &bed, root: website.root.with_file_name("moved") };
    std::fs::rename(&website.root, &moved.root).unwrap();
    bed.fails(3, "send --to opal@moved -m x");
    assert!(works(moved.run("projects")).contains("moved"));
    bed.ok("send --to opal@moved -m x");
}

#[test]
fn a_list_of_projects_that_cannot_be_written_stops_nothing() {
    let bed = Bed::new();
    let place = bed.project().with_file_name(".local");
    std::fs::remove_dir_all(&place).unwrap();
    std::fs::write(&place, "").unwrap();
    for line in ["init", "projects"] {
        bed.run(line).ends(0).says(["projects cannot be written"]);
    }
    assert_eq!(bed.run("projects").stdout, "none\n");
}

/// A container sees the queue of the host by another path.
#[test]
fn a_queue_on_a_bind_mount_is_one_project() {
    let bed = Bed::new();
    member(&bed, "cora");
    let inside = bed.project().with_file_name("inside");
    std::fs::create_dir(&inside).unwrap();
    let script = "mount --bind \"$1\" \"$2\" 2>/dev/null || exit 75
        cd \"$2\" && env -u ENSEMBLE_QUEUE -u ENSEMBLE_AGENT_PASS \"$3\" init >/dev/null &&
        \"$3\" --queue \"$2/queue\" send --to w1 -m hello";
    let in_container = |pass: &str| {
        let mut command = Command::new("unshare");
        command.args(["-Urm", "sh", "-c", script, "sh"]);
        command.args([&bed.project(), &inside]).arg(program());
        command.env_clear().env("HOME", bed.project().parent().unwrap());
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("ENSEMBLE_AGENT_PASS", pass);
        command.env("ENSEMBLE_QUEUE", bed.project().join("queue"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().map(ran)
    };
    // Not every machine lets a user mount anything.
    match in_container("cora") {
        Ok(ran) if ran.code == 0 => {}
        Ok(ran) if ran.code != 75 && !ran.stderr.contains("unshare") => panic!("{ran:?}"),
        _ => return,
    }
    read(&bed, "w1").begins("Message from cora of your team:");
    assert_eq!(noted(&bed), 1, "two paths, one project");
}
