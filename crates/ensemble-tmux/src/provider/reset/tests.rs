use proptest::prelude::*;

use super::*;

const NOW: &str = "2026-11-22T10:00:00Z";

fn read_at(text: &str, now: &str, zones: &Zones) -> Option<String> {
    reset_instant(text, now.parse().unwrap(), zones).map(|at| at.to_string())
}

fn read(text: &str) -> Option<String> {
    read_at(text, NOW, &Zones::utc())
}

/// Compares up to the minute: seconds, milliseconds and zone are always the same.
fn is(text: &str, wanted: &str) {
    assert_eq!(read(text).as_deref(), Some(&*format!("{wanted}:00.000Z")), "{text}");
}

#[test]
fn stretches_of_time() {
    is("2 hours 5 minutes", "2026-11-22T12:05");
    is("in 2 hours, 5 minutes", "2026-11-22T12:05");
    is("3 days 2 hours 1 minute", "2026-11-25T12:01");
    is("1h 30m", "2026-11-22T11:30");
    is("2h5m.", "2026-11-22T12:05");
    is("in 120s", "2026-11-22T10:02");
    is("1 day and 1 hour", "2026-11-23T11:00");
    is("less than a minute", "2026-11-22T10:01");
    for text in ["2", "in 2", "in two hours", "5 parsecs", "400 days", "99999999999999999999 s", ""]
    {
        assert_eq!(read(text), None, "{text}");
    }
}

#[test]
fn times_of_day_are_the_nearest() {
    is("3pm", "2026-11-22T15:00");
    is("3 PM", "2026-11-22T15:00");
    is("9:30am", "2026-11-22T09:30");
    is("12am", "2026-11-22T00:00");
    is("12:15 pm", "2026-11-22T12:15");
    is("15:00", "2026-11-22T15:00");
    is("1am", "2026-11-22T01:00");
    assert_eq!(
        read_at("1am", "2026-11-22T23:00:00Z", &Zones::utc()).unwrap()[..16],
        *"2026-11-23T01:00"
    );
    assert_eq!(
        read_at("11pm", "2026-11-22T01:00:00Z", &Zones::utc()).unwrap()[..16],
        *"2026-11-21T23:00"
    );
    is("tomorrow at 9am", "2026-11-23T09:00");
    for text in ["13pm", "0am", "25:00", "12:60", "3", "3:", "3:0:0:0", "3 o'clock"] {
        assert_eq!(read(text), None, "{text}");
    }
}

#[test]
fn dates() {
    is("Jan 3rd, 2026 5:12 PM", "2026-01-03T17:12");
    is("Mar 10th, 2027 3:39 AM", "2027-03-10T03:39");
    is("Nov 25 at 10am", "2026-11-25T10:00");
    is("Nov 25, 10am (UTC)", "2026-11-25T10:00");
    is("November 25 at 10:30am", "2026-11-25T10:30");
    is("Jan 2 at 3pm", "2027-01-02T15:00");
    is("Aug 20", "2026-08-20T00:00");
    // The 22nd is a Sunday.
    is("Monday 3pm", "2026-11-23T15:00");
    is("Fri at 9am", "2026-11-27T09:00");
    is("2026-11-25 10:00", "2026-11-25T10:00");
    for text in
        ["Jan 3rd,", "Feb 30 at 3pm", "Jan Feb 3", "3rd", "2026", "Nov 25 at 10am 11am", "Monday"]
    {
        assert_eq!(read(text), None, "{text}");
    }
}

#[test]
fn stamps() {
    is("2026-11-22T17:12:00Z", "2026-11-22T17:12");
    is("2026-11-22T17:12:00+02:00", "2026-11-22T15:12");
    is("1795341600", "2026-11-22T10:00");
    is("1795341600000", "2026-11-22T10:00");
    for text in ["179534160", "17953416000000", "99999999999999999999"] {
        assert_eq!(read(text), None, "{text}");
    }
}

#[test]
fn zones_are_heeded_and_unknown_ones_are_not_guessed() {
    is("3pm (UTC)", "2026-11-22T15:00");
    is("3pm UTC", "2026-11-22T15:00");
    is("3pm +02:00", "2026-11-22T13:00");
    is("3pm (UTC+1)", "2026-11-22T14:00");
    is("3pm GMT-0330", "2026-11-22T18:30");
    for text in ["3pm (EST)", "3pm (Mars/Olympus)", "3pm (local time)", "3pm +25:00", "3pm +2:99"] {
        assert_eq!(read(text), None, "{text}");
    }
    let zones = Zones::of_this_machine();
    if zones.named("europe/berlin").is_none() {
        return eprintln!("not tried: this machine has no /usr/share/zoneinfo");
    }
    let in_berlin = |text: &str, now: &str| read_at(text, now, &zones).unwrap()[..16].to_owned();
    assert_eq!(in_berlin("3pm (Europe/Berlin)", NOW), "2026-11-22T14:00");
    assert_eq!(in_berlin("3pm (Europe/Berlin)", "2026-07-01T10:00:00Z"), "2026-07-01T13:00");
    // It is said there that the 23rd has begun.
    assert_eq!(in_berlin("12:30am (Europe/Berlin)", "2026-11-22T23:10:00Z"), "2026-11-22T23:30");
}

#[test]
fn a_limit_is_remembered_until_the_same_words_may_mean_the_next_day() {
    let at = |text: &str| text.parse::<Timestamp>().unwrap();
    let zones = Zones::utc();
    let first = UsageLimit::read("3pm", at("2026-11-22T10:00:00Z"), &zones, None).unwrap();
    let same = |now| UsageLimit::read("3pm", at(now), &zones, Some(&first)).unwrap();
    assert!(
        !first.is_over(at("2026-11-22T14:59:59Z")) && first.is_over(at("2026-11-22T15:00:00Z"))
    );
    assert_eq!(same("2026-11-23T02:59:59Z"), first, "asked anew it would be the next one");
    assert_eq!(same("2026-11-23T05:00:00Z").until, at("2026-11-23T15:00:00Z"));
    let other = UsageLimit::read("4pm", at("2026-11-22T10:00:00Z"), &zones, Some(&first)).unwrap();
    assert_eq!(other.until, at("2026-11-22T16:00:00Z"));
}

fn words() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("in".to_owned()),
        Just("at".to_owned()),
        Just("3pm".to_owned()),
        Just("jan".to_owned()),
        Just("monday".to_owned()),
        Just("(europe/berlin)".to_owned()),
        Just("hours".to_owned()),
        Just("2026".to_owned()),
        Just("tomorrow".to_owned()),
        Just("+".to_owned()),
        Just("pm".to_owned()),
        "[0-9]{1,20}",
        "[0-9]{1,2}:[0-9]{1,3}",
        "[+-][0-9:]{0,6}",
        "[0-9]{1,4}(st|th|h|m|d|w)",
        "[-0-9]{1,12}T[0-9:]{1,8}Z?",
        "\\PC{0,6}",
    ];
    (prop::collection::vec(word, 0..9), "[ ,]{1,2}").prop_map(|(words, gap)| words.join(&gap))
}

proptest! {
    #[test]
    fn no_text_panics(text in prop_oneof![words(), ".{0,220}"], now in any::<i64>()) {
        let zones = Zones::of_this_machine();
        let _ = reset_instant(&text, Timestamp::from_unix_millis(now), &zones);
        let _ = reset_instant(&text, NOW.parse().unwrap(), &zones);
    }

    #[test]
    fn a_stretch_is_as_long_as_it_says(days in 0_u64..300, hours in 0_u64..24, minutes in 0_u64..60) {
        let now: Timestamp = NOW.parse().unwrap();
        let left = Duration::from_secs((days * 24 + hours) * 3600 + minutes * 60);
        for text in [format!("{days} days {hours} hours {minutes} minutes"), format!("in {days}d {hours}h {minutes}m")] {
            prop_assert_eq!(reset_instant(&text, now, &Zones::utc()), Some(now.plus(left)));
        }
    }

    #[test]
    fn a_date_is_read_as_it_is_written(month in 0_usize..12, day in 1_u8..29, hour in 0_u8..24, minute in 0_u8..60) {
        let (half, twelve) = if hour < 12 { ("AM", hour) } else { ("PM", hour - 12) };
        let twelve = if twelve == 0 { 12 } else { twelve };
        let text = format!("{} {day}th, 2026 {twelve}:{minute:02} {half}", MONTHS[month]);
        let wanted = format!("2026-{:02}-{day:02}T{hour:02}:{minute:02}:00Z", month + 1);
        prop_assert_eq!(reset_instant(&text, NOW.parse().unwrap(), &Zones::utc()), Some(wanted.parse().unwrap()));
    }

    #[test]
    fn a_time_of_day_is_within_half_a_day(hour in 0_u8..24, minute in 0_u8..60, seconds in 0_u64..200_000) {
        let now = NOW.parse::<Timestamp>().unwrap().plus(Duration::from_secs(seconds));
        let at = reset_instant(&format!("{hour}:{minute:02}"), now, &Zones::utc()).unwrap();
        prop_assert!(at.since(now).max(now.since(at)) <= Duration::from_secs(12 * 3600));
        let clock = format!("T{hour:02}:{minute:02}:00");
        prop_assert!(at.to_string().contains(&clock));
    }
}
