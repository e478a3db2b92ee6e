// Parses the launcher's command line: its own options, then the command, which is not changed.
#include "tools/launch/nodes/launch_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>
#include <utility>

#include "backends/identity/hostlist.h"
#include "io/base/files/io_error.h"
#include "io/base/files/open_file.h"
#include "tools/launch/nodes/launch_values.h"
#include "tools/options/input/command_line.h"
#include "tools/options/input/own_arguments.h"
#include "tools/options/table/value_text.h"
#include "tools/report/output/exit_codes.h"

namespace tools {
namespace {

constexpr const char* kExamples =
    "COMMAND is a command of this program (train ...) or any other program. Options may also be "
    "set as ENGINE_NAME or PET_NAME in the environment, and be spelled with _.\n"
    "Examples:\n"
    "  engine launch --nproc-per-node 2 train --model convnet --dataset glyphs --save-dir run\n"
    "  engine launch --nproc-per-node 4 --max-restarts 3 train --model mlp --dataset mnist "
    "--save-dir run\n"
    "  engine launch --nnodes 2 --node-rank 1 --master-addr n1 --master-port 29500 "
    "--nproc-per-node 4 train ...\n"
    "  engine launch --hosts n1,n2 --nproc-per-node 4 --dry-run train ...\n"
    "  engine launch --nproc-per-node 2 -r 0:3 -t 1:2 --log-dir logs -- python script.py --lr 0.1";

// The values as given, before they are checked.
struct RawOptions {
  std::map<std::string, std::string> text;  // by option name
  std::vector<std::string> environment;
  bool standalone = false, dry_run = false, no_kill_orphans = false, controlled = false,
       ignored = false, respawn = false;
};

struct TextOption {
  const char* name;
  const char* flags;
  const char* metavar;
  const char* group;
  const char* help;
};
constexpr TextOption kTextOptions[] = {
    {"nnodes", "--nnodes", "N|MIN:MAX", "job",
     "nodes of the job; MIN:MAX: nodes may join and leave (default: 1)"},
    {"nproc-per-node", "--nproc-per-node", "N|gpu|cpu|auto", "job",
     "workers per node; gpu, cpu: one per visible GPU or core; auto: gpu, else cpu (default: 1)"},
    {"node-rank", "--node-rank", "R", "job", "number of this node, from 0"},
    {"max-restarts", "--max-restarts", "K", "job",
     "restart all workers up to K times after a failure; train then resumes (default: 0)"},
    {"respawn-pause", "--respawn-pause", "S", "job",
     "maximum delay of a --respawn restart, in seconds (default: 32)"},
    {"hosts", "--hosts", "A,B", "job",
     "start the launcher on these hosts over ssh, in the order of node ranks"},
    {"hostfile", "--hostfile", "FILE", "job",
     "hosts from a file, one per line: 'name' or 'name slots=N'"},
    {"master-addr", "--master-addr", "A", "rendezvous",
     "host of rank 0 (default: 127.0.0.1 with one node)"},
    {"master-port", "--master-port", "P", "rendezvous",
     "port of rank 0; 0: any free one (default: 0 with one node, a random port with --hosts, else "
     "29500)"},
    {"rdzv-id", "--rdzv-id", "ID", "rendezvous", "name of the job, the same on all nodes"},
    {"rdzv-endpoint", "--rdzv-endpoint", "H:P|file:///P", "rendezvous",
     "rendezvous address: host and port, or a shared file"},
    {"rdzv-backend", "--rdzv-backend", "static|engine", "rendezvous",
     "both select this program's rendezvous, with given node ranks"},
    {"redirects", "-r,--redirects", "S", "output",
     "streams written to files only: 0 none, 1 stdout, 2 stderr, 3 both, or 0:1,1:3"},
    {"tee", "-t,--tee", "S", "output", "streams written to files and shown"},
    {"log-dir", "--log-dir", "DIR", "output",
     "folder of log files; alone: -t 3 (default: launch-logs)"},
    {"local-ranks-filter", "--local-ranks-filter", "LIST", "output",
     "show only these local ranks: 0,2-3"},
    {"monitor-interval", "--monitor-interval", "S", "output",
     "accepted for torchrun's sake: exits are noticed immediately (default: 0.1)"},
    {"directory", "--directory", "DIR", "", ""},  // hidden: passed to launchers on other hosts
};

// Options of torchrun that have no meaning here, and what to do instead.
constexpr std::pair<const char*, const char*> kForeignOptions[] = {
    {"-m", "write the command in full: python -m MODULE"},
    {"--module", "write the command in full: python -m MODULE"},
    {"--run-path", "write the command in full: python SCRIPT"},
    {"--role", "all workers have the same role"},
    {"--rdzv-conf", "use the command's own --rdzv-timeout and --timeout"},
    {"--start-method", "workers are always separate processes"},
    {"--local-addr", "use --master-addr, or the command's --iface"},
    {"--event-log-handler", "events are printed on stderr"},
    {"--numa-binding", "use the command's own --bind"},
};

void reject_foreign_options(const Arguments& own) {
  for (const std::string& argument : own)
    for (const auto& [foreign, advice] : kForeignOptions) {
      const std::string name = hyphenated(argument);
      if (name == foreign || name.starts_with(std::string(foreign) + "="))
        throw UsageError("engine launch has no " + std::string(foreign) + ": " + advice);
    }
}

void add_options(CLI::App& app, RawOptions& raw) {
  for (const TextOption& o : kTextOptions)
    app.add_option_function<std::string>(
           o.flags, [&raw, o](const std::string& value) { raw.text[o.name] = value; }, o.help)
        ->type_name(o.metavar)
        ->group(o.group);
  app.add_option_function<std::string>(
         "--env", [&raw](const std::string& value) { raw.environment.push_back(value); },
         "environment variable for the workers; may be repeated")
      ->type_name("K=V")
      ->group("job")
      ->trigger_on_parse();
  app.add_flag("--standalone", raw.standalone, "one node and any free port")->group("rendezvous");
  app.add_flag("--dry-run", raw.dry_run,
               "print the plan (rank,node,device,threads,address) and exit")
      ->group("job");
  app.add_flag("--respawn", raw.respawn,
               "elastic jobs: restart failed workers, with growing delays")
      ->group("job");
  app.add_flag("--no-kill-orphans", raw.no_kill_orphans,
               "let workers and their child processes outlive the launcher")
      ->group("job");
  app.add_flag("--controlled-by-stdin", raw.controlled, "")->group("");
  app.add_flag("--no-python,--use-env", raw.ignored, "")->group("");  // these always hold here
}

bool truth(const std::string& source, const std::string& value) {
  if (value == "1" || value == "true") return true;
  if (value == "0" || value == "false") return false;
  throw io::ConfigError(source + " '" + value + "': expected 1, true, 0 or false");
}

// Fills in values that the command line left open. `sources` gets the variable's name for messages.
void add_environment(RawOptions& raw, std::map<std::string, std::string>& sources) {
  const auto variable = [](const std::string& name, std::string& source) -> std::string {
    std::string upper = name;
    std::transform(upper.begin(), upper.end(), upper.begin(),
                   [](char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(c)); });
    for (const char* prefix : {"ENGINE_", "PET_"}) {
      source = prefix + upper;
      if (const char* value = std::getenv(source.c_str()); value != nullptr && *value != '\0')
        return value;
    }
    return "";
  };
  for (const TextOption& o : kTextOptions) {
    std::string source;
    if (raw.text.count(o.name) != 0 || *o.help == '\0') continue;
    if (const std::string value = variable(o.name, source); !value.empty()) {
      raw.text[o.name] = value;
      sources[o.name] = source;
    }
  }
  std::string source;
  if (const std::string value = variable("standalone", source); !value.empty())
    raw.standalone |= truth(source, value);
}

int milliseconds_of(const std::string& text, const std::string& option) {
  const std::optional<double> seconds = parse_real(text);
  if (!seconds || *seconds <= 0 || *seconds > 3600)
    throw io::ConfigError(option + " '" + text +
                          "': expected seconds, more than 0 and at most 3600");
  return std::max(1, static_cast<int>(std::lround(*seconds * 1000)));
}

void check_command(const LaunchOptions& o) {
  if (o.command.empty())
    throw UsageError("no command to launch: give train ... or a program (engine launch --help)");
  if (o.command.front() == "launch")
    throw UsageError("launch cannot launch itself: give train ... or a program");
  if (o.command.front() == "train")
    for (const std::string& a : o.command)
      if (hyphenated(a) == "--spawn" || hyphenated(a).starts_with("--spawn="))
        throw UsageError("--spawn and launch both start the ranks: drop one of them");
  for (const std::string& variable : o.environment)
    if (variable.find('=') == std::string::npos || variable.front() == '=')
      throw UsageError("--env '" + variable + "': expected NAME=VALUE");
}

void check_meeting(const LaunchOptions& o, bool several) {
  if (o.rendezvous.standalone && (o.nodes.count != 1 || several || o.nodes.rank.value_or(0) != 0 ||
                                  !o.rendezvous.endpoint.empty()))
    throw UsageError(
        "--standalone is for a single node: drop it, or --nnodes, --node-rank, --hosts "
        "and --rdzv-endpoint");
  if (!o.rendezvous.endpoint.empty() &&
      (!o.rendezvous.master_addr.empty() || o.rendezvous.master_port))
    throw UsageError(
        "--rdzv-endpoint and --master-addr or --master-port both set the rendezvous address: give "
        "one of them");
  if (several && (o.nodes.rank || o.controlled))
    throw UsageError("--hosts gives the node ranks itself: drop --node-rank");
}

// "a,b", or with brackets as SLURM writes it: "n[01-03],login".
std::vector<std::string> host_names(const std::string& list, const std::string& source) {
  if (list.find_first_of("[]") == std::string::npos) return split_list(list);
  return backends::expand_hostlist(list, source);
}

// "[::1]" is also written without its brackets.
std::string without_brackets(const std::string& host) {
  const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return brackets ? host.substr(1, host.size() - 2) : host;
}

// The texts of options that were given, with their sources for messages.
class GivenTexts {
 public:
  GivenTexts(const RawOptions& raw, const std::map<std::string, std::string>& sources)
      : raw_(raw), sources_(sources) {}

  bool has(const char* name) const { return raw_.text.contains(name); }
  std::string text(const char* name) const { return has(name) ? raw_.text.at(name) : ""; }
  std::string source(const char* name) const {
    const auto found = sources_.find(name);
    return found != sources_.end() ? found->second : std::string("--") + name;
  }
  std::optional<int> number(const char* name, int min, int max) const {
    if (!has(name)) return std::nullopt;
    return parse_whole(text(name), min, max, source(name));
  }
  std::optional<int> milliseconds(const char* name) const {
    if (!has(name)) return std::nullopt;
    return milliseconds_of(text(name), source(name));
  }

 private:
  const RawOptions& raw_;
  const std::map<std::string, std::string>& sources_;
};

// `slots` gets those of a file of hosts.
LaunchNodes nodes_of(const GivenTexts& given, std::string& slots) {
  LaunchNodes nodes;
  const bool from_file = given.has("hostfile"), named = given.has("hosts");
  if (named && from_file)
    throw UsageError("--hosts and --hostfile both name the hosts: give one of them");
  nodes.hosts = from_file ? read_host_file(given.text("hostfile"), slots)
                          : host_names(given.text("hosts"), given.source("hosts"));
  if ((named || from_file) && nodes.hosts.empty())
    throw io::ConfigError("no host is named: give at least one");
  const auto hosts = static_cast<int>(nodes.hosts.size());
  const NodeCount count = given.has("nnodes")
                              ? parse_node_count(given.text("nnodes"), given.source("nnodes"))
                              : NodeCount{.max = std::max(1, hosts)};
  nodes.count = count.max;
  nodes.min_count = count.min;
  if (hosts > 0 && nodes.count != hosts)
    throw io::ConfigError(given.source("nnodes") + " " + std::to_string(nodes.count) + ", but " +
                          std::to_string(hosts) +
                          " hosts are named; drop one of the two, or make them agree");
  nodes.rank = given.number("node-rank", 0, nodes.count - 1);
  return nodes;
}

void check_rendezvous_backend(const GivenTexts& given) {
  const std::string backend = given.text("rdzv-backend");
  if (!backend.empty() && backend != "static" && backend != "engine")
    throw io::ConfigError(given.source("rdzv-backend") + " '" + backend +
                          "': expected static or engine; nodes meet by this program's own "
                          "rendezvous, with --node-rank and --rdzv-endpoint HOST:PORT");
}

void fill(LaunchOptions& o, const GivenTexts& given) {
  std::string slots;
  o.nodes = nodes_of(given, slots);
  o.nproc_per_node = given.has("nproc-per-node") ? given.text("nproc-per-node") : slots;
  o.rendezvous.master_port = given.number("master-port", 0, 65535);
  o.restarts.max = given.number("max-restarts", 0, 1'000'000).value_or(0);
  if (const auto interval = given.milliseconds("monitor-interval"))
    o.monitor_interval_ms = *interval;
  o.restarts.longest_pause_ms = given.milliseconds("respawn-pause");
  check_rendezvous_backend(given);
  o.rendezvous.master_addr = without_brackets(given.text("master-addr"));
  o.rendezvous.id = given.text("rdzv-id");
  o.rendezvous.endpoint = given.text("rdzv-endpoint");
  o.output = {.redirects = given.text("redirects"),
              .tee = given.text("tee"),
              .log_dir = given.text("log-dir"),
              .local_ranks_filter = given.text("local-ranks-filter")};
  o.directory = given.text("directory");
}

}  // namespace

std::optional<LaunchOptions> parse_launch_options(const Arguments& arguments) {
  CLI::App app(
      "engine launch [OPTIONS] [--] COMMAND ...: starts the ranks of a job, supervises them and "
      "ends them together.",
      "engine launch");
  app.footer(kExamples);
  RawOptions raw;
  add_options(app, raw);
  const auto middle =
      arguments.begin() + static_cast<std::ptrdiff_t>(count_own_arguments(app, arguments));
  const Arguments own(arguments.begin(), middle);
  reject_foreign_options(own);
  if (!parse(app, own)) return std::nullopt;
  LaunchOptions options;
  options.command.assign(middle, arguments.end());
  if (!options.command.empty() && options.command.front() == "--")
    options.command.erase(options.command.begin());
  std::map<std::string, std::string> sources;
  if (!raw.controlled) add_environment(raw, sources);
  options.rendezvous.standalone = raw.standalone;
  options.environment = raw.environment;
  options.dry_run = raw.dry_run;
  options.kill_orphans = !raw.no_kill_orphans;
  options.restarts.respawn = raw.respawn;
  options.controlled = raw.controlled;
  fill(options, GivenTexts(raw, sources));
  check_command(options);
  check_meeting(options, !options.nodes.hosts.empty());
  return options;
}

std::vector<std::string> launch_option_names() {
  std::vector<std::string> names{"standalone"};
  for (const TextOption& o : kTextOptions)
    if (*o.help != '\0') names.emplace_back(o.name);
  return names;
}

std::vector<std::string> read_host_file(const std::string& path, std::string& slots) {
  constexpr std::uint64_t kLargestFile = 1 << 24;
  std::istringstream file;
  try {
    file.str(io::read_small_file(path, kLargestFile));
  } catch (const io::MissingFileError&) {
    throw io::MissingFileError("--hostfile " + path +
                               ": cannot be read; expected a file with one host per line");
  }
  std::vector<std::string> hosts;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string host, rest, more;
    if (!(words >> host)) continue;
    words >> rest;
    const std::string where = path + ":" + std::to_string(number);
    const std::string here = rest.starts_with("slots=") ? rest.substr(6) : "";
    if ((!rest.empty() && here.empty()) || words >> more)
      throw io::ConfigError(where + ": '" + line + "': expected NAME or NAME slots=N");
    if (!here.empty()) parse_whole(here, 1, 65536, where + ": slots");
    if (!hosts.empty() && here != slots)
      throw io::ConfigError(where + ": " + (here.empty() ? "no slots" : "slots=" + here) +
                            ", but the hosts before have " +
                            (slots.empty() ? "none" : "slots=" + slots) +
                            "; every node has the same number of workers");
    slots = here;
    for (std::string& name : host_names(host, where)) hosts.push_back(std::move(name));
  }
  return hosts;
}

}  // namespace tools
