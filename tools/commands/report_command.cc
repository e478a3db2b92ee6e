// `engine report`: a page about runs.
#include <cstdio>

#include "io/base/visible_text.h"
#include "io/checkpoint/atomic_file.h"
#include "tools/commands/command.h"
#include "tools/html/report_page.h"
#include "tools/report/exit_codes.h"

namespace tools {

int report_command(const Arguments& arguments) {
  CLI::App app("Writes a page about one run, or several beside each other, for a browser.",
               "engine report");
  std::vector<std::string> folders;
  std::string output = "report.html";
  app.add_option("RUN", folders, "folders of runs, as --save-dir named them")->required();
  app.add_option("-o,--output", output,
                 "the page: one file that needs no other; - for standard output")
      ->type_name("FILE.html")
      ->capture_default_str();
  app.footer("Example: engine report runs/a runs/b -o report.html");
  if (!parse(app, arguments)) return kExitOk;
  std::vector<RunHistory> runs;
  for (const std::string& folder : folders) runs.push_back(read_run_history(folder));
  const std::string page = report_html(runs);
  if (output == "-") {
    std::fwrite(page.data(), 1, page.size(), stdout);
    return kExitOk;
  }
  io::write_file_atomically(output, page);
  std::printf("wrote %s\n", base::visible_text(output).c_str());
  return kExitOk;
}

}  // namespace tools
