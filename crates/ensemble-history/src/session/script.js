'use strict';
(() => {
  const pad = n => String(n).padStart(2, '0');
  const local = (date, form) => {
    const clock = pad(date.getHours()) + ':' + pad(date.getMinutes());
    if (form === 'short') return clock;
    const exact = clock + ':' + pad(date.getSeconds());
    if (form !== 'full') return exact;
    return date.getFullYear() + '-' + pad(date.getMonth() + 1) + '-' + pad(date.getDate()) + ' ' + exact;
  };
  const zone = () => {
    const minutes = -new Date().getTimezoneOffset();
    const size = Math.abs(minutes);
    return minutes ? 'UTC' + (minutes < 0 ? '-' : '+') + pad(Math.floor(size / 60)) + ':' + pad(size % 60) : 'UTC';
  };
  let stories = {};
  const dress = () => {
    stories = JSON.parse(document.getElementById('stories').textContent);
    for (const time of document.querySelectorAll('time')) {
      time.textContent = local(new Date(time.dateTime), time.dataset.form);
    }
    document.getElementById('zone').textContent = zone();
  };
  const dialog = document.getElementById('story');
  const kinds = { a: 'Agent', t: 'Task', r: 'Request' };
  const open = key => {
    const list = dialog.querySelector('ol');
    list.textContent = '';
    const at = key.indexOf(':');
    document.getElementById('story-of').textContent = kinds[key.slice(0, at)] + ' ' + key.slice(at + 1);
    for (const [millis, text] of stories[key] || [[null, 'No record is kept of it.']]) {
      const line = document.createElement('li');
      if (millis !== null) {
        const time = document.createElement('time');
        time.textContent = local(new Date(millis), 'clock');
        line.append(time);
      }
      const span = document.createElement('span');
      span.textContent = text;
      line.append(span);
      list.append(line);
    }
    dialog.showModal();
    dialog.scrollTop = 0;
  };
  document.addEventListener('click', event => {
    const button = event.target.closest('[data-story]');
    if (button) open(button.dataset.story);
    else if (event.target === dialog) dialog.close();
  });
  // Left and right go from bar to bar of a row; Tab goes from row to row.
  document.addEventListener('keydown', event => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const bar = event.target.closest && event.target.closest('.bar');
    if (!step || !bar) return;
    const row = [...bar.parentElement.querySelectorAll('.bar')].sort((a, b) => a.offsetLeft - b.offsetLeft);
    const next = row[row.indexOf(bar) + step];
    if (next) { next.focus(); event.preventDefault(); }
  });
  dress();
  if (!document.documentElement.dataset.live) return;
  let tag = document.documentElement.dataset.live;
  const update = async () => {
    try {
      const answer = await fetch(location.href, { cache: 'no-store', headers: { 'If-None-Match': tag } });
      if (answer.status === 200) {
        tag = answer.headers.get('ETag');
        const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
        const focused = document.activeElement && document.activeElement.title;
        document.querySelector('main').replaceWith(page.querySelector('main'));
        document.getElementById('stories').replaceWith(page.getElementById('stories'));
        document.title = page.title;
        dress();
        const again = focused && document.querySelector('[title="' + CSS.escape(focused) + '"]');
        if (again) again.focus();
      }
      document.documentElement.classList.remove('lost');
    } catch { document.documentElement.classList.add('lost'); }
    setTimeout(update, 1000);
  };
  update();
})();
