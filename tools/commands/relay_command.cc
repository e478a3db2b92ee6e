// Implements `engine relay`: joins connections of ranks that cannot reach each other.
#include <poll.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <string>

#include "backends/relay/relay_server.h"
#include "backends/store/private_files.h"
#include "tools/commands/command.h"
#include "tools/launch/workers/signal_inbox.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"

namespace tools {
namespace {

void print_line(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void wait_for_stop(SignalInbox& signals) {
  for (;;) {
    pollfd ready{signals.fd(), POLLIN, 0};
    static_cast<void>(::poll(&ready, 1, -1));  // wait until a signal comes
    while (const std::optional<int> signal = signals.take())
      if (*signal == SIGINT || *signal == SIGTERM || *signal == SIGHUP) return;
  }
}

}  // namespace

int relay_command(const Arguments& arguments) {
  CLI::App app("Joins connections of ranks that cannot reach each other (engine train --relay).",
               "engine relay");
  std::string listen;
  app.add_option("--listen", listen, "address and port of this host, HOST:PORT")
      ->type_name("HOST:PORT")
      ->required();
  if (!parse(app, arguments)) return kExitOk;
  const backends::Secret secret = backends::find_secret("");
  SignalInbox signals;  // before the relay's thread, which inherits the mask
  const backends::RelayServer server(
      {.listener = backends::listen_on(backends::parse_endpoint(listen, "--listen")),
       .secret = secret,
       .report = print_line,
       .notice = warn});
  print_line("relay at " + to_string(server.endpoint()) + " for jobs with the secret of " +
             secret.origin + ", until it is interrupted (Ctrl-C)");
  wait_for_stop(signals);
  print_line("relay stopped");
  return kExitOk;
}

}  // namespace tools
