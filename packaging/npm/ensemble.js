#!/usr/bin/env node
// Starts the program `ensemble` of the package for this system, in the place of this process where Node can do that
// (23.11 and newer). Elsewhere the program gets this process's standard streams, arguments and signals, and this
// process ends as the program ends.
'use strict'

const { spawn } = require('node:child_process')
const { constants } = require('node:os')

const MISSING = 5
// A terminal sends these to the program as well, so a second one from here would interrupt it twice.
const FROM_TERMINAL = ['SIGINT', 'SIGQUIT']
const FORWARDED = ['SIGHUP', 'SIGTERM', 'SIGUSR1', 'SIGUSR2']

function program () {
  const name = `@ensemble-broker/${process.platform}-${process.arch}`
  try {
    return require.resolve(`${name}/bin/ensemble`)
  } catch {
    console.error(`ensemble: the package ${name} is not installed`)
    console.error('hint: install without --omit=optional, or run: cargo install ensemble-broker')
    process.exit(MISSING)
  }
}

function run (path, words) {
  const child = spawn(path, words, { stdio: 'inherit' })
  for (const signal of FORWARDED) process.on(signal, () => child.kill(signal))
  for (const signal of FROM_TERMINAL) process.on(signal, () => { if (!process.stdin.isTTY) child.kill(signal) })
  child.on('error', error => {
    console.error(`ensemble: ${error.message}`)
    process.exit(1)
  })
  // As a shell reports a program that a signal has ended.
  child.on('exit', (code, signal) => process.exit(signal === null ? code : 128 + constants.signals[signal]))
}

const [path, words] = [program(), process.argv.slice(2)]
if (process.execve) {
  process.removeAllListeners('warning')
  process.execve(path, [path, ...words], process.env)
} else {
  run(path, words)
}
