// Folders, files and child processes for tests.
#include "tests/support/test_support.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "tests/support/time_limits.h"

namespace test_support {
namespace {

std::string environment_or(const char* name, const char* fallback) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : fallback;
}

}  // namespace

std::string data_directory(const std::string& name) {
  const std::filesystem::path path =
      std::filesystem::path(environment_or("ENGINE_TEST_DATA", ENGINE_DEFAULT_TEST_DATA)) / name;
  return std::filesystem::is_directory(path) ? std::filesystem::canonical(path).string() : "";
}

std::string source_directory() {
  return environment_or("ENGINE_SOURCE_DIR", ENGINE_DEFAULT_SOURCE_DIR);
}

std::string engine_binary() { return environment_or("ENGINE_BINARY", "engine"); }

TemporaryDirectory::TemporaryDirectory() {
  static std::atomic<int> next{0};
  path_ = std::filesystem::temp_directory_path() /
          ("engine-test-" + std::to_string(getpid()) + "-" + std::to_string(next.fetch_add(1)));
  std::filesystem::remove_all(path_);
  std::filesystem::create_directories(path_);
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code
      ignored;  // a folder that a test made unwritable stays behind; nothing to do about it here
  std::filesystem::remove_all(path_, ignored);
}

void become(const std::vector<std::string>& argv,
            const std::map<std::string, std::string>& environment) {
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& a : argv) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  _exit(127);
}

CommandResult run_command(const std::vector<std::string>& argv,
                          const std::map<std::string, std::string>& environment, int timeout_ms) {
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
    throw std::runtime_error("pipe2 failed");
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    setpgid(0, 0);
    dup2(open("/dev/null", O_RDONLY), 0);
    dup2(out[1], 1);
    dup2(err[1], 2);
    become(argv, environment);
  }
  close(out[1]);
  close(err[1]);
  CommandResult result;
  const auto start = std::chrono::steady_clock::now();
  const std::chrono::milliseconds timeout(timeout_ms);
  pollfd fds[2] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
  std::string* sinks[2] = {&result.out, &result.err};
  bool late = false;
  while (!late && (fds[0].fd >= 0 || fds[1].fd >= 0)) {
    late = is_past(start, timeout);
    poll(fds, 2, late ? 0 : 200);
    for (int i = 0; i < 2; ++i) {
      if (fds[i].fd < 0 || fds[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t got = read(fds[i].fd, buffer, sizeof buffer);
      if (got > 0) {
        sinks[i]->append(buffer, static_cast<std::size_t>(got));
      } else if (got == 0 || errno != EINTR) {
        fds[i].fd = -1;  // poll ignores negative descriptors
      }
    }
  }
  if (late) kill(-child, SIGKILL);
  close(out[0]);
  close(err[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  result.exit_code = late ? 124 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

CommandResult engine(std::vector<std::string> arguments,
                     const std::map<std::string, std::string>& environment, int timeout_ms) {
  arguments.insert(arguments.begin(), engine_binary());
  return run_command(arguments, environment, timeout_ms);
}

std::vector<std::string> overridden(std::vector<std::string> arguments,
                                    const std::vector<std::string>& more) {
  for (const std::string& word : more) {
    std::string name = word.substr(0, word.find('='));
    std::replace(name.begin(), name.end(), '_', '-');
    const auto found = std::find(arguments.begin(), arguments.end(), name);
    if (!name.starts_with("--") || found == arguments.end()) continue;
    const bool has_value = found + 1 != arguments.end() && !(found + 1)->starts_with("--");
    arguments.erase(found, found + (has_value ? 2 : 1));
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::string command_line_of(int pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/cmdline", std::ios::binary);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  return text.str();
}

std::vector<int> workers_of(int pid) {
  std::vector<int> workers;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream in(entry.path() / "stat");
    int child = 0, parent = 0;
    std::string name, state;
    if (in >> child >> name >> state >> parent && parent == pid && name != "(engine-guard)")
      workers.push_back(child);
  }
  std::ranges::sort(workers);
  return workers;
}

std::string test_name(std::string name) {
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace test_support
