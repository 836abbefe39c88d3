//! A real headless browser, controlled over two pipes. It emulates phones, dark mode and paper, and
//! returns the layout and the pixels of a page.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use serde_json::{Value, json};

use crate::tmux_support::{LOOK_INTERVAL, PATIENCE};

/// How long the first process of the machine may take to take note of others that have ended.
const REAPED_WITHIN: Duration = Duration::from_secs(10);

/// Its protocol goes over descriptors 3 and 4.
const START: &str = "exec chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars \
    --disable-dev-shm-usage --force-color-profile=srgb --user-data-dir=\"$1\" \
    --remote-debugging-pipe about:blank 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null";

#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    pub(crate) width: u32,
    pub(crate) is_phone: bool,
    pub(crate) is_dark: bool,
    pub(crate) is_paper: bool,
}

/// Pixels, one for each of CSS.
pub(crate) struct Picture {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pixels: Vec<u8>,
}

/// A browser with one page; ended when it is dropped.
pub(crate) struct Browser {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    calls: u64,
    session: Option<String>,
}

impl Browser {
    /// Starts it; `None`, with the reason printed, where there is none.
    pub(crate) fn start(home: &Path) -> Option<Self> {
        if Command::new("chromium").arg("--version").output().is_err() {
            println!("skipped: chromium is not installed (apt-get install chromium)");
            return None;
        }
        let mut process = Command::new("sh")
            .args(["-c", START, "sh"])
            .arg(home.join("profile"))
            .env("HOME", home)
            // The directory of its socket.
            .env("TMPDIR", home)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut browser = Self { process, input, output, calls: 0, session: None };
        let page = browser.first_page();
        let page = json!({ "targetId": page, "flatten": true });
        let attached = browser.call("Target.attachToTarget", page);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        browser.call("Page.enable", json!({}));
        Some(browser)
    }

    /// The page that it opens by itself, once it has: it answers before that.
    fn first_page(&mut self) -> Value {
        let start = Instant::now();
        loop {
            let targets = self.call("Target.getTargets", json!({}));
            let targets = targets["targetInfos"].as_array().unwrap();
            if let Some(page) = targets.iter().find(|target| target["type"] == "page") {
                return page["targetId"].clone();
            }
            assert!(start.elapsed() < PATIENCE, "the browser opens no page: {targets:?}");
        }
    }

    #[track_caller]
    fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.input.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut answer = self.hear();
            if answer["id"] == self.calls {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].take();
            }
        }
    }

    fn hear(&mut self) -> Value {
        let mut message = Vec::new();
        self.output.read_until(0, &mut message).unwrap();
        message.pop().expect("the browser is still there");
        serde_json::from_slice(&message).unwrap()
    }

    pub(crate) fn open(&mut self, page: &Path, screen: Screen) {
        let Screen { width, is_phone, is_dark, is_paper } = screen;
        let metrics =
            json!({ "width": width, "height": 844, "deviceScaleFactor": 1, "mobile": is_phone });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let scheme = if is_dark { "dark" } else { "light" };
        let media = json!({
            "media": if is_paper { "print" } else { "" },
            "features": [{ "name": "prefers-color-scheme", "value": scheme }],
        });
        self.call("Emulation.setEmulatedMedia", media);
        self.call("Page.navigate", json!({ "url": format!("file://{}", page.display()) }));
        while self.evaluate("document.readyState + location.pathname")
            != json!(format!("complete{}", page.display()))
        {}
    }

    pub(crate) fn visit(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
        while self.evaluate("document.readyState + location.href")
            != json!(format!("complete{url}"))
        {}
    }

    #[track_caller]
    pub(crate) fn click(&mut self, selector: &str) {
        let place = self.evaluate(&format!(
            "(() => {{ const e = document.querySelector(`{selector}`); e.scrollIntoView({{block: 'center'}});
               const r = e.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2] }})()"
        ));
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    pub(crate) fn press(&mut self, key: &str) {
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            _ => 39,
        };
        let text = if key == "Enter" { "\r" } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let event = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": if kind == "keyDown" { text } else { "" } });
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    #[track_caller]
    pub(crate) fn promised(&mut self, expression: &str) -> Value {
        let call = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.call("Runtime.evaluate", call);
        assert!(answer["exceptionDetails"].is_null(), "{answer}");
        answer["result"]["value"].take()
    }

    #[track_caller]
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let call = json!({ "expression": expression, "returnByValue": true });
        let mut answer = self.call("Runtime.evaluate", call);
        assert!(answer["exceptionDetails"].is_null(), "{answer}");
        answer["result"]["value"].take()
    }

    /// The whole page, not only what fits the screen; kept as a file if `ENSEMBLE_KEEP_SCREENSHOTS`
    /// names a directory.
    pub(crate) fn picture(&mut self, name: &str) -> Picture {
        let size = self.evaluate(
            "[document.documentElement.clientWidth, document.documentElement.scrollHeight]",
        );
        let clip = json!({ "x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1 });
        let shot = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let shot = self.call("Page.captureScreenshot", shot);
        let png = base64(shot["data"].as_str().unwrap());
        keep(&format!("{name}.png"), &png);
        Picture::decode(&png)
    }

    /// Writes the top of the page as a picture for the documentation, if `ENSEMBLE_WRITE_PICTURES` names a directory.
    pub(crate) fn write_picture(&mut self, name: &str, height: u32) {
        let Some(place) = std::env::var_os("ENSEMBLE_WRITE_PICTURES") else { return };
        let clip = json!({ "x": 0, "y": 0, "width": 1280, "height": height, "scale": 1 });
        let shot = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let shot = self.call("Page.captureScreenshot", shot);
        let png = base64(shot["data"].as_str().unwrap());
        std::fs::write(Path::new(&place).join(format!("{name}.png")), png).unwrap();
    }

    /// The page as a PDF, as the browser prints it by default.
    pub(crate) fn print(&mut self) -> Vec<u8> {
        self.call("Emulation.setEmulatedMedia", json!({ "media": "", "features": [] }));
        let pdf = self.call("Page.printToPDF", json!({ "paperWidth": 8.27, "paperHeight": 11.69 }));
        let pdf = base64(pdf["data"].as_str().unwrap());
        keep("page.pdf", &pdf);
        pdf
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its child processes write into its home until they exit.
        let group = Pid::from_child(&self.process);
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.process.wait();
        let start = Instant::now();
        while test_kill_process_group(group).is_ok() && start.elapsed() < REAPED_WITHIN {
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
}

impl Picture {
    fn decode(png: &[u8]) -> Self {
        let mut decoder = png::Decoder::new(std::io::Cursor::new(png));
        decoder.set_transformations(png::Transformations::normalize_to_color8());
        let mut reader = decoder.read_info().unwrap();
        let mut buffer = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut buffer).unwrap();
        let samples = info.color_type.samples();
        assert!(samples >= 3, "{info:?}");
        let pixels = buffer.chunks_exact(samples).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]);
        let (width, height) = (info.width as usize, info.height as usize);
        Self { width, height, pixels: pixels.take(width * height * 3).collect() }
    }

    #[track_caller]
    pub(crate) fn at(&self, x: f64, y: f64) -> [u8; 3] {
        let (x, y) = (x as usize, y as usize);
        assert!(x < self.width && y < self.height, "{x},{y} of {} × {}", self.width, self.height);
        let start = (y * self.width + x) * 3;
        [self.pixels[start], self.pixels[start + 1], self.pixels[start + 2]]
    }
}

fn keep(name: &str, content: &[u8]) {
    if let Some(kept) = std::env::var_os("ENSEMBLE_KEEP_SCREENSHOTS") {
        std::fs::write(Path::new(&kept).join(name), content).unwrap();
    }
}

/// RFC 4648, as the browser writes it.
fn base64(text: &str) -> Vec<u8> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut out, mut bits, mut count) = (Vec::with_capacity(text.len()), 0_u32, 0);
    for byte in text.bytes().take_while(|byte| *byte != b'=') {
        let six = LETTERS.iter().position(|letter| *letter == byte).expect("base64");
        bits = bits << 6 | u32::try_from(six).unwrap();
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count & 0xff) as u8);
        }
    }
    out
}
