// Implements `engine version`.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "backends/group.h"
#include "engine/ops/common/cpu_dispatch.h"
#include "io/gpu/compiled_code.h"
#include "tools/commands/command.h"
#include "tools/options/input/command_line.h"
#include "tools/report/output/build_info.h"
#include "tools/report/output/exit_codes.h"

namespace tools {

int version_command(const Arguments& arguments) {
  CLI::App app("Shows the version of this program.", "engine version");
  bool build = false;
  app.add_flag("--build", build, "also commit, compiler, instruction set, CUDA and backends");
  if (!parse(app, arguments)) return kExitOk;
  std::printf("engine %s\n", ENGINE_VERSION);
  if (!build) return kExitOk;
  std::printf(
      "commit       %s\ncompiler     %s\nbuild type   %s%s%s\ninstructions %s (this CPU: up to "
      "%s)\n",
      ENGINE_COMMIT, ENGINE_COMPILER, ENGINE_BUILD_TYPE,
      *ENGINE_SANITIZERS != '\0' ? ", sanitizers " : "", ENGINE_SANITIZERS,
      std::string(engine::ops::to_string(engine::ops::cpu_isa())).c_str(),
      std::string(engine::ops::to_string(engine::ops::best_cpu_isa())).c_str());
  const std::string architectures =
      base::cuda::architectures_text(base::cuda::compiled_architectures());
  std::printf("CUDA         %s%s%s\n", ENGINE_CUDA, architectures.empty() ? "" : ", ",
              architectures.c_str());
  for (const backends::BackendInfo& b : backends::list_backends())
    std::printf("backend      %-8s %s%s%s\n", b.name.c_str(), b.usable ? "usable" : "not usable",
                b.note.empty() ? "" : ": ", b.note.c_str());
  return kExitOk;
}

}  // namespace tools
