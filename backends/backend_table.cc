// The table of backends. A further backend is a further row; `auto` takes the first usable one that joins processes.
#include "backends/backend_table.h"

#include "backends/backend_error.h"
#include "backends/gloo/gloo_backend.h"
#include "backends/group.h"

namespace backends {
namespace {

const Backend kBackends[] = {
    {"gloo", true, kGlooIsBuilt, kGlooNote, &make_gloo_communicator},
    {"inproc", false, true, "ranks are threads of one process", nullptr},
};

std::string usable_names() {
  std::string names = "auto";
  for (const Backend& b : kBackends) {
    if (b.usable) names += std::string(", ") + b.name;
  }
  return names;
}

}  // namespace

std::span<const Backend> all_backends() { return kBackends; }

std::vector<BackendInfo> list_backends() {
  std::vector<BackendInfo> list;
  for (const Backend& b : kBackends) list.push_back({b.name, b.usable, b.note});
  return list;
}

BackendChoice choose_backend(const std::string& name, int world_size) {
  std::string missing;
  for (const Backend& b : kBackends) {
    if (name == "auto" && b.joins_processes && b.usable && world_size > 1) {
      return {&b, b.name, std::string("auto: ") + b.name + " is built in and the ranks are processes"};
    }
    if (name == "auto" && b.joins_processes && !b.usable) missing += std::string("; ") + b.name + ": " + b.note;
    if (name != b.name) continue;
    if (!b.usable) throw ConfigurationError("backend " + name + " is not in this build: " + b.note);
    if (world_size == 1) return {nullptr, "single", name + " was asked for, but one rank has nothing to exchange"};
    if (!b.joins_processes)
      throw ConfigurationError("backend " + name + " joins threads of one process, not " + std::to_string(world_size) +
                               " processes");
    return {&b, b.name, "asked for"};
  }
  if (name != "auto") throw ConfigurationError("unknown backend \"" + name + "\"; this build has " + usable_names());
  if (world_size == 1) return {nullptr, "single", "auto: one rank has nothing to exchange"};
  throw ConfigurationError("no backend in this build joins " + std::to_string(world_size) + " processes" + missing);
}

}  // namespace backends
