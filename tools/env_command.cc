// `engine env`: the resolved identity of this process, with the source of each value; and the backends of this build.
#include <cstdio>

#include "backends/group.h"
#include "backends/rendezvous/identity.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/console_observer.h"
#include "tools/exit_codes.h"
#include "tools/train_session.h"

namespace tools {

int env_command(const Arguments& arguments) {
  CLI::App app("Shows rank, world size and meeting place as `engine train` would resolve them here, and where each comes from.",
               "engine env");
  std::string format = "text";
  io::ConfigValues values;
  app.add_option("--format", format, "text, sh or json")->check(CLI::IsMember({"text", "sh", "json"}))->default_str("text");
  add_table_options(app, values, {"init-method", "rank", "world-size", "local-rank"});
  if (!parse(app, arguments)) return kExitOk;
  io::apply_environment(values);
  const auto number = [&](const char* name) -> std::optional<int> {
    const auto found = values.find(name);
    if (found == values.end() || found->second.value.empty()) return std::nullopt;
    try {
      std::size_t used = 0;
      const int value = std::stoi(found->second.value, &used);
      if (used == found->second.value.size()) return value;
    } catch (const std::exception&) {  // told below, with the source
    }
    throw io::ConfigError(std::string(name) + " '" + found->second.value + "' (" + found->second.source +
                          "): expected a whole number");
  };
  const auto method = values.find("init-method");
  const backends::Identity identity =
      backends::resolve_identity({.init_method = method == values.end() ? "" : method->second.value,
                                  .rank = number("rank"),
                                  .world_size = number("world-size"),
                                  .local_rank = number("local-rank")},
                                 backends::process_environment());
  for (const std::string& warning : identity.warnings) print_notice(warning);
  struct Row {
    const char* name;
    backends::ResolvedValue value;
  };
  const Row rows[] = {{"RANK", identity.rank_from},
                      {"WORLD_SIZE", identity.world_from},
                      {"LOCAL_RANK", identity.local_rank_from},
                      {"LOCAL_WORLD_SIZE", identity.local_world_from},
                      {"NODE_RANK", identity.node_rank_from},
                      {"MASTER_ADDR", identity.master_addr_from},
                      {"MASTER_PORT", identity.master_port_from}};
  const int threads = default_threads(identity.local_world_size);
  if (format == "json") {
    std::printf("{\"schema\":1,\"init_method\":\"%s\",\"threads\":%d", identity.init_method.c_str(), threads);
    for (const Row& row : rows)
      std::printf(",\"%s\":{\"value\":\"%s\",\"source\":\"%s\"}", row.name, row.value.value.c_str(), row.value.source.c_str());
    std::printf("}\n");
    return kExitOk;
  }
  if (format == "sh") {
    for (const Row& row : rows)
      if (!row.value.value.empty())
        std::printf("export %s=%s  # %s\n", row.name, row.value.value.c_str(), row.value.source.c_str());
    return kExitOk;
  }
  for (const Row& row : rows)
    std::printf("%-17s %-20s from %s\n", row.name, row.value.value.empty() ? "-" : row.value.value.c_str(),
                row.value.source.empty() ? "nowhere" : row.value.source.c_str());
  std::printf("%-17s %-20s\n", "init method", identity.init_method.empty() ? "- (one rank)" : identity.init_method.c_str());
  std::printf("%-17s %-20d from the cores that this process may use\n", "threads", threads);
  for (const backends::BackendInfo& b : backends::list_backends())
    std::printf("backend %-9s %-20s %s\n", b.name.c_str(), b.usable ? "usable" : "not usable", b.note.c_str());
  return kExitOk;
}

}  // namespace tools
