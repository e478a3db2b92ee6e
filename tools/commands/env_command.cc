// Implements `engine env`: prints the resolved identity of this process, with the source of each
// value, and the backends of this build.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "backends/group.h"
#include "backends/identity/hostlist.h"
#include "backends/identity/identity.h"
#include "backends/identity/launchers.h"
#include "engine/ops/common/bf16_dispatch.h"
#include "io/base/files/io_error.h"
#include "io/base/formats/json_writer.h"
#include "io/base/text/escape_text.h"
#include "tools/commands/command.h"
#include "tools/launch/machine/device_choice.h"
#include "tools/launch/machine/thread_choice.h"
#include "tools/options/input/command_line.h"
#include "tools/options/input/config_sources.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"
#include "tools/report/output/shell_text.h"
#include "tools/report/output/standard_output.h"

namespace tools {
namespace {

struct VariableRow {
  const char* name;
  backends::ResolvedValue value;
  bool exported = true;  // in the format sh
};

std::optional<int> whole_number(const ConfigValues& values, const char* name) {
  const auto found = values.find(name);
  if (found == values.end() || found->second.value.empty()) return std::nullopt;
  try {
    std::size_t used = 0;
    const int value = std::stoi(found->second.value, &used);
    if (used == found->second.value.size()) return value;
  } catch (const std::exception&) {  // reported below, with the source
  }
  throw io::ConfigError(std::string(name) + " '" + found->second.value + "' (" +
                        found->second.source + "): expected a whole number");
}

std::string text_of(const ConfigValues& values, const char* name, const char* fallback) {
  const auto found = values.find(name);
  return found == values.end() ? fallback : found->second.value;
}

// resolve_identity() names the flag as the source of an option, but here the value may come from
// ENGINE_*.
backends::ResolvedValue with_source(backends::ResolvedValue value, const ConfigValues& values) {
  const auto found =
      value.source.rfind("--", 0) == 0 ? values.find(value.source.substr(2)) : values.end();
  if (found != values.end()) value.source = found->second.source;
  return value;
}

backends::ResolvedValue visible_gpus(const backends::Environment& environment) {
  backends::ResolvedValue gpus = backends::variable(environment, "SLURM_STEP_GPUS");
  return gpus.value.empty() ? backends::variable(environment, "CUDA_VISIBLE_DEVICES") : gpus;
}

std::vector<VariableRow> rows_of(const backends::Identity& id, const ConfigValues& values,
                                 const backends::Environment& environment) {
  const ThreadChoice threads = choose_threads(id.local_world_size, environment);
  std::vector<VariableRow> rows = {
      {"RANK", id.rank_from},
      {"WORLD_SIZE", id.world_from},
      {"LOCAL_RANK", id.local_rank_from},
      {"LOCAL_WORLD_SIZE", id.local_world_from},
      {"NODE_RANK", id.node_rank_from},
      {"MASTER_ADDR", id.master_addr_from},
      {"MASTER_PORT", id.master_port_from},
      {"ENGINE_JOB_ID", id.job_from},
      {"ENGINE_THREADS", {std::to_string(threads.threads), threads.source}},
      {"GPUS", visible_gpus(environment), false}};
  for (VariableRow& row : rows) row.value = with_source(row.value, values);
  return rows;
}

void print_json(const std::vector<VariableRow>& rows, const backends::Identity& id,
                const std::string& port_rule) {
  base::JsonWriter json;
  json.begin_object().member("schema", 1).member("init_method", id.init_method);
  json.member("port_rule", port_rule).member("port_window", id.port_window);
  for (const VariableRow& row : rows) {
    json.key(row.name).begin_object().member("value", row.value.value);
    json.member("source", row.value.source).end_object();
  }
  json.key("cuda").begin_object().member("note", gpu_note()).member("devices", gpu_lines());
  std::printf("%s\n", json.end_object().end_object().text().c_str());
}

void print_shell(const std::vector<VariableRow>& rows) {
  for (const VariableRow& row : rows) {
    if (row.exported && !row.value.value.empty())
      std::printf("export %s=%s  # %s\n", row.name, shell_quoted(row.value.value).c_str(),
                  row.value.source.c_str());
  }
}

void print_text(const std::vector<VariableRow>& rows, const backends::Identity& id,
                const std::string& port_rule) {
  const std::string isa(engine::ops::to_string(engine::ops::cpu_isa())),
      missing = engine::ops::missing_bf16_products();
  for (const VariableRow& row : rows)
    std::printf("%-17s %-20s from %s\n", row.name,
                row.value.value.empty() ? "-" : base::escape_text(row.value.value).c_str(),
                row.value.source.empty() ? "nowhere" : base::escape_text(row.value.source).c_str());
  std::printf("%-17s %s\n", "init method",
              id.init_method.empty() ? "- (one rank)" : base::escape_text(id.init_method).c_str());
  std::printf("%-17s %-20s %d port%s tried\n", "port rule", port_rule.c_str(), id.port_window,
              id.port_window == 1 ? "" : "s");
  std::printf("%-17s %-20s %s\n", "CPU kernels", isa.c_str(),
              missing.empty() ? "--amp bf16 can be given" : ("no --amp bf16: " + missing).c_str());
  std::printf("%-17s %s\n", "CUDA devices", gpu_note().c_str());
  for (const std::string& gpu : gpu_lines()) std::printf("%-17s %s\n", "", gpu.c_str());
  for (const backends::BackendInfo& b : backends::list_backends())
    std::printf("backend %-9s %-20s %s\n", b.name.c_str(), b.usable ? "usable" : "not usable",
                b.note.c_str());
}

int print_hosts(const std::string& list, const std::string& format) {
  const std::vector<std::string> hosts = backends::expand_hostlist(list, "--hosts");
  if (format != "json") {
    for (const std::string& host : hosts) print_output(host + "\n");
    return kExitOk;
  }
  std::printf("%s\n", base::JsonWriter().value(hosts).text().c_str());
  return kExitOk;
}

}  // namespace

int env_command(const Arguments& arguments) {
  CLI::App app(
      "Shows rank, world size and rendezvous address as `engine train` would determine them here, "
      "and the source of each.",
      "engine env");
  std::string format = "text", hosts;
  ConfigValues values;
  app.add_option("--format", format, "text, sh or json")
      ->check(CLI::IsMember({"text", "sh", "json"}))
      ->default_str("text");
  CLI::Option* hosts_option =
      app.add_option("--hosts", hosts, "only expand this host list: n[01-03,7],login")
          ->type_name("HOSTLIST");
  add_table_options(app, values,
                    {"init-method", "rank", "world-size", "local-rank", "port-rule", "job-id"});
  if (!parse(app, arguments)) return kExitOk;
  if (hosts_option->count() > 0) return print_hosts(hosts, format);
  apply_environment(values);
  const std::string port_rule = text_of(values, "port-rule", "auto");
  const backends::Environment environment = backends::process_environment();
  const backends::Identity identity =
      backends::resolve_identity({.init_method = text_of(values, "init-method", ""),
                                  .rank = whole_number(values, "rank"),
                                  .world_size = whole_number(values, "world-size"),
                                  .local_rank = whole_number(values, "local-rank"),
                                  .port_rule = backends::parse_port_rule(port_rule),
                                  .job_id = text_of(values, "job-id", "")},
                                 environment);
  for (const std::string& warning : identity.warnings) print_notice(warning);
  const std::vector<VariableRow> rows = rows_of(identity, values, environment);
  if (format == "json") {
    print_json(rows, identity, port_rule);
  } else if (format == "sh") {
    print_shell(rows);
  } else {
    print_text(rows, identity, port_rule);
  }
  return kExitOk;
}

}  // namespace tools
