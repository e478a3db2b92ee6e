#!/usr/bin/env python3
"""Shows that structure_bounds.py counts what it says, on a small tree, and fails above a bound."""
import os
import subprocess
import sys
import tempfile

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "structure_bounds.py")
HEADER = """// Types and functions of several kinds; "not a } bracket", and neither { this.
#pragma once
#define ENGINE_BRACE {
#include "io/second.h"
namespace io {

template <class T, class F = void (*)(int, int)>
struct Pair {
  Pair() : first_{1}, second_(2) {}
  Pair(const Pair&) = delete;
  bool operator<(const Pair& other) const { return first_ < other.first_ && second_ < other.second_; }
  void apply(std::map<int, T> a, std::function<void(int, int)> b, int c = 1);
  static int count;
  using Other = int;
  int first_, second_{2};
  std::function<void(int)> third_;

 private:
  void hidden();
};

enum class Color { kRed, kBlue };

}  // namespace io
"""
SOURCE = '''// Functions.
#include "io/first.h"

namespace io {
namespace {
const char* const kText = R"(if { } while)";
const auto kLambda = [](int x) { return x > 1 ? 1 : 2; };
}  // namespace

int branches(int a, int b) {
  // if (a) && comments do not count
  auto&& c = a;
  if (a > 1 && b > 1) return c;
  for (int i = 0; i < a; ++i)
    switch (i) {
      case 1: return 'x';
      default: break;
    }
  return a < b ? 1 : 2;
}

}  // namespace io
'''
REASONS = """// Reasons.
// The union of all messages.
// structure: the fields of one
// frame.
template <class T>
struct Wide { int %s; };

// structure: nothing needs it
int short() { return 1; }

// structure: a comment that is not above it

struct Unstated { int %s; };
""" % ((", ".join(f"a{i}" for i in range(21)),) * 2)
SECOND = "// The other half of a circle of units.\n#pragma once\n"
SECOND_SOURCE = '// Leads back.\n#include "io/second.h"\n#include "io/first.h"\n'


def expect(name, found, expected):
    if found != expected:
        sys.exit(f"{name}: {found}, expected {expected}")


def main():
    with tempfile.TemporaryDirectory() as root:
        os.mkdir(f"{root}/io")
        files = {"first.h": HEADER, "first.cc": SOURCE, "second.h": SECOND, "second.cc": SECOND_SOURCE}
        for name, text in files.items():
            with open(f"{root}/io/{name}", "w", encoding="utf-8") as file:
                file.write(text)
        sys.path.insert(0, os.path.dirname(SCRIPT))
        import structure_bounds
        import test_measures

        found = structure_bounds.Reader("io/first.h", HEADER).read()
        expect("functions of the header", [(f.name, f.lines, f.complexity, f.parameters) for f in found.functions],
               [("Pair", 1, 1, 0), ("operator<", 1, 2, 1)])
        expect("types", [(t.name, t.fields, t.functions) for t in found.types], [("Pair", 3, 2)])
        found = structure_bounds.Reader("io/first.cc", SOURCE).read()
        expect("functions of the source", [(f.name, f.lines, f.complexity, f.parameters) for f in found.functions],
               [("branches", 11, 6, 2)])
        found = structure_bounds.Reader("io/reasons.h", REASONS).read()
        expect("reasons", [(item.name, item.reason, structure_bounds.excess_of(item)) for item in found.types + found.functions],
               [("Wide", "the fields of one", ["types with more than 20 fields"]),
                ("Unstated", "", ["types with more than 20 fields"]), ("short", "nothing needs it", [])])
        with open(f"{root}/io/reasons.h", "w", encoding="utf-8") as file:
            file.write(REASONS)
        os.chdir(root)
        values, named = structure_bounds.measure(["io/reasons.h"])
        expect("what is counted", (values["types with more than 20 fields"], values["functions and types with a stated reason"],
                                   named[structure_bounds.NEEDLESS]), (1, 1, ["io/reasons.h:9: short: nothing needs it"]))

        os.remove(f"{root}/io/reasons.h")
        misplaced = ["io/first.o", "notes.txt", "state.o"]
        values, named = structure_bounds.measure(["README.md", ".ci/run", "docs/index.md", *misplaced])
        expect("misplaced files", named["misplaced files"], misplaced)
        tests = ["tests/io/first_test.cc", "tests/io/other_test.cc", "tests/oi/any_test.cc", "tests/training/a/any_test.cc"]
        expect("tests elsewhere", test_measures.misplaced_tests([*(f"io/{name}" for name in files), *tests], ("io/",)),
               ["tests/oi/any_test.cc: there is no oi, nor is it in SPANNING of test_measures.py"])
        expect("a test of a unit elsewhere", test_measures.misplaced_tests(["io/a/x.cu", "tests/io/x_cuda_test.cc"], ("io/",)),
               ["tests/io/x_cuda_test.cc: io/a has x"])

        product = 'void f(int n) { throw Error("rank " + text(n) + " sings its one song: " + why); }\n'
        cases = {"io/said.cc": product,
                 "tests/a_test.cc": 'TEST(A, One) {\n  EXPECT_EQ(x, "rank 1 sings "\n    "its one song: no");\n  f() << "rank 1 sings its one song";\n}\n'
                                    'TEST(A, Two) { EXPECT_CONTAINS(x, "rank 1"); }\n',
                 "tests/b_test.py": '"""Rank 1 sings its one song."""\nassert "rank 22 sings its one song" in text  # rank 1 sings its one song\n'}
        os.makedirs(f"{root}/tests", exist_ok=True)
        for name, text in cases.items():
            with open(f"{root}/{name}", "w", encoding="utf-8") as file:
                file.write(text)
        one = "tests/a_test.cc:2: rank 1 sings its one song: no"
        other = 'tests/b_test.py:2: "rank 22 sings its one song"'
        expect("asserted sentences", test_measures.asserted_sentences(list(cases), ("io/",)), ([one, other], [f"{one}; {other}"]))
        expect("a sentence of one test", test_measures.asserted_sentences(list(cases)[:2], ("io/",)), ([one], []))
        for name in cases:
            os.remove(f"{root}/{name}")

        def run(bound):
            with open(f"{root}/bounds.csv", "w", encoding="utf-8") as table:
                table.write(f'measure,bound,goal\n"lines of a function, maximum",{bound},1\nunits in circles,2,\n')
            environment = dict(os.environ, GIT_DIR="/nonexistent")  # files are found without git, wherever the folder lies
            return subprocess.run([sys.executable, SCRIPT, "--bounds", f"{root}/bounds.csv", root], env=environment,
                                  capture_output=True, text=True, check=False)

        kept, over = run(11), run(10)
        expect("bounds that are kept", (kept.returncode, kept.stdout.splitlines()[-1]), (0, "2 bounds are kept"))
        expect("a bound that is not", (over.returncode, over.stdout.splitlines()[-1]),
               (1, "lines of a function, maximum: 11, at most 10"))
    print("counts what it says")


if __name__ == "__main__":
    main()
