// Shared by the tests: the real data sets, temporary folders, and running the real program.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace test_support {

// ENGINE_TEST_DATA, by default ../shared/data beside the source tree. `name` is a folder in it
// ("mnist"). Returns "" when it is not there: then GTEST_SKIP() << "no data set NAME".
std::string data_directory(const std::string& name);

std::string source_directory();  // root of the source tree
std::string engine_binary();     // path of the `engine` just built (set by CTest as ENGINE_BINARY)

// A fresh folder that is removed with the object. Unique to process and object.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

struct CommandResult {
  int exit_code = -1;  // 128 + N when killed by signal N; 124 when killed at the deadline
  std::string out, err;
};
// In a forked process: becomes argv[0] with its arguments (no shell) and the given variables added
// to the environment; exits with 127 if it cannot.
[[noreturn]] void become(const std::vector<std::string>& argv,
                         const std::map<std::string, std::string>& environment);

// Runs a program as become() does in a process of its own;
// kills it when `timeout_ms`, scaled (time_limits.h), have passed.
CommandResult run_command(const std::vector<std::string>& argv,
                          const std::map<std::string, std::string>& environment = {},
                          int timeout_ms = 60'000);
// The same of the program just built, with these arguments.
CommandResult engine(std::vector<std::string> arguments,
                     const std::map<std::string, std::string>& environment = {},
                     int timeout_ms = 60'000);

// `more` behind `arguments`, which lose what it says otherwise: no option has two values.
std::vector<std::string> overridden(std::vector<std::string> arguments,
                                    const std::vector<std::string>& more);

// A process's arguments, each ended by NUL; "" if it has just ended.
std::string command_line_of(int pid);

// The running children of a process, ascending; the guard process that the program keeps beside its
// workers is left out.
std::vector<int> workers_of(int pid);

// A parameter's name as GoogleTest takes it, of letters, digits and _: "resnet18-cifar" ->
// "resnet18_cifar".
std::string test_name(std::string name);

std::string read_text(const std::string& path);
void write_text(const std::string& path, const std::string& text);

}  // namespace test_support
