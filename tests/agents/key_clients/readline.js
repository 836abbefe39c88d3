// Writes each key that Node's readline reports into DIRECTORY/keys, a line each.
const fs = require('fs');
const readline = require('readline');
const dir = process.argv[2];
readline.emitKeypressEvents(process.stdin);
process.stdin.setRawMode(true);
process.stdin.on('keypress', (_, key) => {
  const bytes = [...key.sequence].map((c) => c.charCodeAt(0)).join(' ');
  const name = key.name === 'escape' ? 'escape' : `${key.meta ? 'alt-' : ''}${key.ctrl ? 'ctrl-' : ''}${key.name}`;
  fs.appendFileSync(`${dir}/keys`, `${name}: ${bytes}\n`);
});
fs.writeFileSync(`${dir}/ready`, '');
