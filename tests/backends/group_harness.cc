// Threads as ranks.
#include "tests/backends/group_harness.h"
#include "tests/support/time_limits.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <thread>

#include "backends/backend_error.h"
#include "backends/store/tcp_socket.h"

namespace group_harness {

Listener open_listener() {
  const backends::Socket listener = backends::listen_on({"127.0.0.1", 0});
  return {dup(listener.fd()), backends::local_endpoint(listener.fd()).port};
}

backends::GroupOptions options_for(int rank, int world_size, int port) {
  backends::GroupOptions o;
  o.init_method = "tcp://127.0.0.1:" + std::to_string(port);
  o.rank = rank;
  o.world_size = world_size;
  o.job.secret = kSecret;
  o.rendezvous_timeout_ms = test_support::deadline_ms(20'000);
  o.timeout_ms = test_support::deadline_ms(20'000);
  o.heartbeat_ms = test_support::deadline_ms(1000);
  return o;
}

namespace {

int external_number(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) throw std::runtime_error(std::string(variable) + " is not set");
  return std::atoi(text);
}

// The rendezvous file of the next group of this run; all ranks count alike.
std::string external_rendezvous() {
  static int groups = 0;
  const char* folder = std::getenv("ENGINE_TEST_FOLDER");
  if (folder == nullptr) throw std::runtime_error("ENGINE_TEST_FOLDER is not set");
  return "file://" + std::string(folder) + "/rendezvous" + std::to_string(groups++);
}

}  // namespace

std::optional<int> only_rank() {
  if (std::getenv("ENGINE_TEST_BACKEND") == nullptr) return std::nullopt;
  return external_number("ENGINE_TEST_RANK");
}

std::vector<std::string> backend_names() {
  if (only_rank()) return {kExternal};
  std::vector<std::string> names = {"single"};
  for (const backends::BackendInfo& b : backends::list_backends()) {
    if (!b.usable || b.device_memory) continue;  // ranks here have host memory only
    names.push_back(b.name);
    if (b.joins_hosts) names.push_back("shm+" + b.name);
  }
  return names;
}

int host_of(int rank, int world_size) {
  return rank / (world_size % 2 == 0 || world_size < 5 ? 2 : 3);
}

void choose_backend(backends::GroupOptions& options, const std::string& backend) {
  if (backend == kExternal) {
    options.backend = std::getenv("ENGINE_TEST_BACKEND");
    options.init_method = external_rendezvous();
  } else if (backend.rfind("shm+", 0) == 0) {
    options.backend = backend.substr(4);
    options.local_stage = backends::LocalStage::kShm;
    options.host_id = "host " + std::to_string(host_of(options.rank, options.world_size));
  } else {
    options.backend = backend == "single" ? "auto" : backend;
  }
}

bool backend_fits(const std::string& backend, int world_size) {
  if (backend == kExternal) return world_size == external_number("ENGINE_TEST_WORLD_SIZE");
  if (backend.rfind("shm+", 0) == 0)
    return world_size > 2;  // more than one host, and more ranks than hosts
  return (backend == "single") == (world_size == 1) || backend == "inproc";
}

std::unique_ptr<backends::Group> join(const std::string& backend, int rank, int world_size,
                                      const Listener& listener) {
  backends::GroupOptions o = options_for(rank, world_size, listener.port);
  choose_backend(o, backend);
  if (rank == 0) o.listen.fd = listener.fd;
  return backends::join_group(o);
}

void run_ranks(const std::string& backend, int world_size,
               const std::function<void(backends::Group&)>& body) {
  std::vector<std::unique_ptr<backends::Group>> groups(static_cast<std::size_t>(world_size));
  Listener listener;
  if (backend == "inproc") {
    groups = backends::make_inproc_groups(world_size, test_support::deadline_ms(20'000));
  } else if (world_size > 1 && backend != kExternal) {
    listener = open_listener();
  }
  const std::vector<std::string> errors = outcomes(world_size, [&](int rank) {
    std::unique_ptr<backends::Group>& group = groups[static_cast<std::size_t>(rank)];
    if (!group) group = join(backend, rank, world_size, listener);
    try {
      body(*group);
      group->leave();
    } catch (...) {
      group.reset();  // at once, so that the others are told
      throw;
    }
    group.reset();
  });
  for (const std::string& error : errors) {
    if (!error.empty()) throw std::runtime_error(error);
  }
}

namespace {

// In the child: joins, runs, and writes '+' and the result or '-' and the error.
[[noreturn]] void run_as_rank(const backends::GroupOptions& options, int out,
                              const std::function<std::string(backends::Group&)>& body) {
  std::string answer;
  try {
    const auto group = backends::join_group(options);
    answer = "+" + body(*group);
    group->leave();
  } catch (const std::exception& error) {
    answer = std::string("-") + error.what();
  }
  for (std::size_t done = 0; done < answer.size();) {
    const ssize_t n = write(out, answer.data() + done, answer.size() - done);
    if (n <= 0) break;
    done += static_cast<std::size_t>(n);
  }
  _exit(0);
}

}  // namespace

std::vector<std::string> run_processes(const std::string& backend, int world_size,
                                       const std::function<std::string(backends::Group&)>& body) {
  const Listener listener = open_listener();
  std::vector<std::pair<pid_t, int>> ranks;  // and the end of its pipe
  for (int rank = 0; rank < world_size; ++rank) {
    backends::GroupOptions options = options_for(rank, world_size, listener.port);
    choose_backend(options, backend);
    if (rank == 0) options.listen.fd = listener.fd;
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe");
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(static_cast<unsigned>(test_support::deadline_ms(120'000) / 1000));
      close(ends[0]);
      run_as_rank(options, ends[1], body);
    }
    close(ends[1]);
    ranks.emplace_back(pid, ends[0]);
  }
  close(listener.fd);
  std::vector<std::string> answers;
  std::string failed;
  for (const auto& [pid, in] : ranks) {
    std::string answer;
    char piece[4096];
    for (ssize_t n = 0; (n = read(in, piece, sizeof piece)) > 0;)
      answer.append(piece, static_cast<std::size_t>(n));
    close(in);
    int status = 0;
    waitpid(pid, &status, 0);
    if (answer.empty()) answer = "-ended with status " + std::to_string(status);
    if (answer[0] == '-' && failed.empty())
      failed = "rank " + std::to_string(answers.size()) + ": " + answer.substr(1);
    answers.push_back(answer.substr(1));
  }
  if (!failed.empty()) throw std::runtime_error(failed);
  return answers;
}

std::vector<std::string> outcomes(int world_size, const std::function<void(int rank)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    if (only_rank().value_or(rank) != rank) continue;
    threads.emplace_back([&, rank] {
      std::string& error = errors[static_cast<std::size_t>(rank)];
      try {
        body(rank);
      } catch (const backends::PeerError& e) {
        error = std::string("peer: ") + e.what();
      } catch (const backends::MismatchError& e) {
        error = std::string("mismatch: ") + e.what();
      } catch (const backends::AuthenticationError& e) {
        error = std::string("authentication: ") + e.what();
      } catch (const backends::ConfigurationError& e) {
        error = std::string("configuration: ") + e.what();
      } catch (const std::exception& e) {
        error = std::string("other: ") + e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return errors;
}

}  // namespace group_harness
