#!/usr/bin/env python3
"""Whether the tests notice a missing barrier: deletes each synchronizing statement of a file's PTX in turn, or weakens it, and
runs tests.

Usage: tests/gpu/ptx_mutations.py PTX_FOLDER FILE PROGRAM [--filter GTEST_FILTER] [--seeds 0,1] [--each] [--limit N] [--kinds REGEX]
  PTX_FOLDER  as tests/gpu/make_ptx.sh made it
  FILE        one of its files without .ptx, as gemm_wgmma_cuda
  PROGRAM     a test program of a build with the emulator (build/emulated/tests/engine/ops/ops_cuda_test)
A statement of the source is deleted in all kernels of the file at once (a template has hundreds of instances); with --each, in
one kernel at a time. Prints a row for each: where it is, and what told of it; "not reached" where a trap in its place is not
noticed either: no test runs it. Exits with 0, whatever it finds.
"""
import argparse
import collections
import os
import re
import subprocess
import sys
import tempfile
import time

KINDS = (r'bar\.sync|bar\.arrive|bar\.warp\.sync|barrier\.cluster|cp\.async\.(?:bulk\.)?(?:wait_group|commit_group)|'
         r'wgmma\.(?:fence|commit_group|wait_group)|fence\.|mbarrier\.|setmaxnreg')


def changes(text):
    """What becomes of a statement: (what is done, what stands in its place), one after the other."""
    if match := re.match(r'mbarrier\.(?:try|test)_wait\S* ([^,]+),', text):
        return [('does not wait', 'setp.eq.u32 %s, 0, 0;' % match.group(1))]
    done = [('deleted', '')]
    if '.arrive.expect_tx' in text:
        done.append(('expects nothing', re.sub(r',[^,]*$', ';', text.replace('.expect_tx', ''))))
    if '.arrive.release' in text:
        done.append(('relaxed', text.replace('.release', '.relaxed') + ';'))
    return done


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('ptx_folder')
    parser.add_argument('file')
    parser.add_argument('program')
    parser.add_argument('--filter', default='*')
    parser.add_argument('--seeds', default='0,1')
    parser.add_argument('--each', action='store_true')
    parser.add_argument('--limit', type=int)
    parser.add_argument('--kinds', default=KINDS)
    args = parser.parse_args()
    path = os.path.join(args.ptx_folder, args.file + '.ptx')
    with open(path) as source:
        lines = source.read().split('\n')

    files = {m.group(1): m.group(2) for m in (re.match(r'\s*\.file\s+(\d+) "(.*)"', line) for line in lines) if m}
    # Statements by place: all positions of the chain of inlined functions, so that two uses of one function are two places.
    places = collections.OrderedDict()
    at, kernel = '', ''
    for number, line in enumerate(lines):
        if match := re.search(r'\.entry (\S+?)\(', line):
            kernel = match.group(1)
        if match := re.match(r'\s*\.loc\s+(\d+) (\d+) \d+(.*)', line):
            if match.group(2) != '0':
                chain = [(match.group(1), match.group(2))] + re.findall(r'inlined_at (\d+) (\d+)', match.group(3))
                at = ' < '.join(os.path.basename(files.get(f, f)) + ':' + l for f, l in chain)
        if match := re.match(r'\s*((?:' + args.kinds + r')[^;]*);\s*$', line):
            text = re.sub(r'\s+', ' ', match.group(1))
            places.setdefault((text, at, kernel if args.each else ''), []).append(number)

    def run(replacement, where, seed):
        """What told of it, or nothing."""
        with tempfile.TemporaryDirectory() as folder:
            for name in os.listdir(args.ptx_folder):
                if name.endswith('.ptx') and name != args.file + '.ptx':
                    os.symlink(os.path.abspath(os.path.join(args.ptx_folder, name)), os.path.join(folder, name))
            changed = list(lines)
            for number in where:
                changed[number] = replacement
            with open(os.path.join(folder, args.file + '.ptx'), 'w') as out:
                out.write('\n'.join(changed))
            environment = dict(os.environ, ENGINE_TEST_PTX=folder, ENGINE_TEST_PTX_SEED=seed)
            try:
                done = subprocess.run([args.program, '--gtest_filter=' + args.filter, '--gtest_fail_fast'], env=environment,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1800, errors='replace')
            except subprocess.TimeoutExpired:
                return 'time limit'
        if done.returncode == 0:
            return ''
        fault = re.search(r'\.ptx:\d+(?: \([^)]*\))?: (.*?) \(\w+, block', done.stdout) or re.search(r'\.ptx: \w+: (deadlock)', done.stdout)
        return 'fault: ' + fault.group(1) if fault else 'wrong numbers' if 'FAILED' in done.stdout else 'exit code %d' % done.returncode

    found = run('', [], '0')
    if found:
        sys.exit('ptx_mutations.py: the tests fail without a change: ' + found)
    counts = collections.Counter()
    print('| statement | place | copies | noticed by |\n|---|---|---|---|')
    cases = [(text, place, kernel, where, change) for (text, place, kernel), where in places.items() for change in changes(text)]
    for text, place, kernel, where, (done, replacement) in cases[:args.limit]:
        started = time.time()
        found = ''
        for seed in args.seeds.split(','):
            found = found or run(replacement, where, seed)
        if not found:
            found = '**nothing**' if run('trap;', where, '0') else 'not reached'
        counts[found.split(':')[0]] += 1
        print('| `%s` %s | %s | %d | %s |' % (text, done, place + (' ' + kernel if kernel else ''), len(where), found), flush=True)
        print('%.1f s' % (time.time() - started), file=sys.stderr)
    print('\n' + ', '.join('%s: %d' % each for each in counts.items()))


if __name__ == '__main__':
    main()
