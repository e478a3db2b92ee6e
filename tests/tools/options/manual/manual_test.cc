// Manual pages and completion as the program writes them: nothing of the tables of options is
// missing, mandoc has no complaint, and shells complete what users type.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>

#include "models/model_catalog.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tools/commands/command.h"
#include "tools/options/table/option_table.h"
#include "tools/report/output/exit_codes.h"

namespace {

using test_support::CommandResult;
using test_support::engine;
using test_support::run_command;
namespace fs = std::filesystem;

// "train", "bench step": what has options of its own.
std::vector<std::vector<std::string>> all_commands() {
  std::vector<std::vector<std::string>> result;
  for (const tools::Command& c : tools::commands()) {
    if (c.hidden) continue;
    result.push_back({c.name});
    for (const auto& kind : c.kinds) result.push_back({c.name, kind.name});
  }
  return result;
}

std::string joined(const std::vector<std::string>& words, const char* separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

// The options that `engine COMMAND --help` lists, at the beginnings of its lines.
std::set<std::string> options_in_help(std::vector<std::string> command) {
  command.emplace_back("--help");
  const CommandResult help = engine(command);
  EXPECT_EQ(help.exit_code, 0) << help.err;
  static const std::regex line(R"(^  (-\w,)?(--?[a-z][a-z0-9-]*)(,(--[a-z-]+))?.*)");
  std::set<std::string> names;
  std::istringstream text(help.out);
  std::smatch part;
  for (std::string row; std::getline(text, row);)
    if (std::regex_match(row, part, line)) names.insert(part.str(2));
  return names;
}

class Manual : public testing::Test {
 protected:
  void SetUp() override {
    const CommandResult result =
        engine({"manual", folder_.path().string(), "--date", "2026-01-02"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  std::string page(const std::string& name) const {
    return test_support::read_text(folder_ / (name + ".1"));
  }
  // As readers see it: a name is a word of its own.
  static bool has_option(const std::string& text, std::string name) {
    name = std::regex_replace(name, std::regex("-"), "\\-");
    return text.find("\\fB" + name + "\\fR") != std::string::npos;
  }
  test_support::TemporaryDirectory folder_;
};

TEST_F(Manual, HasEveryOptionOfEveryCommand) {
  std::size_t found = 0;
  for (const std::vector<std::string>& command : all_commands()) {
    const std::string text = page("engine-" + joined(command, "-"));
    for (const std::string& name : options_in_help(command)) {
      EXPECT_TRUE(has_option(text, name)) << joined(command, " ") << " " << name;
      ++found;
    }
  }
  EXPECT_GT(found, 300u) << "the help of commands is not read";
  const std::string train = page("engine-train");
  for (const tools::OptionSpec& option : tools::train_options()) {
    EXPECT_TRUE(has_option(train, "--" + std::string(option.name))) << option.name;
    if (option.type() == tools::OptionSpec::Type::kFlag) {
      EXPECT_TRUE(has_option(train, "--no-" + std::string(option.name))) << option.name;
    }
  }
  for (const char* heading : {"Ranks and rendezvous", "Saving and resuming", "Preemption"})
    EXPECT_CONTAINS(train, ".SS " + std::string(heading) + "\n") << "as in --help";
}

TEST_F(Manual, OverviewNamesCommandsAndExitCodes) {
  const std::string text = page("engine");
  EXPECT_CONTAINS(text, ".TH ENGINE 1 2026-01-02 \"engine ");
  for (const std::vector<std::string>& command : all_commands())
    EXPECT_CONTAINS(text, "\\fB" + joined(command, " ") + "\\fR");
  for (const tools::ExitCode& code : tools::exit_codes())
    EXPECT_CONTAINS(text, "\\fB" + std::to_string(code.code) + "\\fR\n");
  EXPECT_EQ(text.find("engine\\-manual"), std::string::npos) << "hidden commands have no page";
}

TEST_F(Manual, IsTheSameEveryTime) {
  const test_support::TemporaryDirectory again;
  ASSERT_EQ(engine({"manual", again.path().string(), "--date", "2026-01-02"}).exit_code, 0);
  EXPECT_EQ(test_support::read_text(again / "engine-train.1"), page("engine-train"));
}

TEST_F(Manual, MandocFindsNoFault) {
  if (run_command({"sh", "-c", "command -v mandoc"}).exit_code != 0)
    GTEST_SKIP() << "mandoc is not installed";
  std::vector<std::string> lint{"mandoc", "-Tlint", "-Wstyle"};
  for (const auto& entry : fs::directory_iterator(folder_.path())) lint.push_back(entry.path());
  ASSERT_GT(lint.size(), 15u);
  const CommandResult result = run_command(lint);
  std::istringstream lines(result.out + result.err);
  for (std::string line; std::getline(lines, line);) {
    // Pages of other commands are found once all are installed.
    const bool of_place = line.find("referenced manual not found") != std::string::npos;
    EXPECT_TRUE(of_place) << line;
  }
}

TEST_F(Manual, RefusesAFolderThatIsNotThere) {
  const CommandResult result = engine({"manual", folder_ / "none"});
  EXPECT_EQ(result.exit_code, tools::kExitCannotCreate);
  EXPECT_CONTAINS(result.err, "none is no folder");
}

// What bash offers for the last of these words, which bash's completion finds as readline has split
// them.
std::vector<std::string> completed(const std::vector<std::string>& words,
                                   const std::string& folder = ".") {
  std::string list;
  for (const std::string& word : words) list += " '" + word + "'";
  const std::string script =
      "cd '" + folder + "'; source <('" + test_support::engine_binary() +
      "' completion bash) || exit 3\n"
      "[[ $(complete -p engine) == 'complete -F '*' engine' ]] || exit 4\n"
      "function=$(complete -p engine | sed 's/.*-F \\([^ ]*\\) .*/\\1/')\n"
      "COMP_WORDS=(" +
      list +
      "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
      "COMP_LINE=\"${COMP_WORDS[*]}\"; COMP_POINT=${#COMP_LINE}\n"
      "$function engine \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"\n"
      "[ ${#COMPREPLY[@]} -eq 0 ] || printf '%s\\n' \"${COMPREPLY[@]}\"";
  const CommandResult result = run_command({"bash", "--norc", "-u", "-c", script});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  std::vector<std::string> replies;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) replies.push_back(line);
  std::ranges::sort(replies);
  return replies;
}

using Words = std::vector<std::string>;

TEST(BashCompletion, CompletesCommands) {
  EXPECT_EQ(completed({"engine", "tr"}), Words{"train"});
  EXPECT_EQ(completed({"engine", "ver"}), (Words{"verify", "version"}));
  EXPECT_EQ(completed({"engine", "help", "ev"}), Words{"eval"});
  EXPECT_EQ(completed({"engine", "bench", "s"}), (Words{"save", "scaling", "step"}));
  const Words all = completed({"engine", ""});
  for (const tools::Command& c : tools::commands())
    EXPECT_EQ(std::ranges::count(all, c.name), c.hidden ? 0 : 1) << c.name;
}

TEST(BashCompletion, CompletesEveryOptionOfEveryCommand) {
  for (const std::vector<std::string>& command : all_commands()) {
    Words words{"engine"};
    words.insert(words.end(), command.begin(), command.end());
    words.emplace_back("--");
    const Words offered = completed(words);
    for (const std::string& name : options_in_help(command))
      if (name.starts_with("--")) {
        EXPECT_EQ(std::ranges::count(offered, name), 1) << joined(command, " ") << " " << name;
      }
  }
  EXPECT_EQ(completed({"engine", "train", "--sync-e"}), Words{"--sync-every"});
  EXPECT_EQ(completed({"engine", "train", "--sync_e"}), Words{"--sync-every"});
  EXPECT_EQ(completed({"engine", "train", "--no-sync-b"}), Words{"--no-sync-bn"});
  EXPECT_EQ(completed({"engine", "bench", "step", "--warm"}), Words{"--warmup"});
}

TEST(BashCompletion, CompletesValues) {
  EXPECT_EQ(completed({"engine", "train", "--uneven", ""}), (Words{"drop", "join", "pad"}));
  EXPECT_EQ(completed({"engine", "train", "--uneven", "=", "d"}), Words{"drop"});
  EXPECT_EQ(completed({"engine", "train", "--uneven", "="}), (Words{"drop", "join", "pad"}));
  EXPECT_EQ(completed({"engine", "train", "--lr", "0.1", "--dataset", "gl"}), Words{"glyphs"});
  EXPECT_EQ(completed({"engine", "verify", "--format", ""}), (Words{"json", "names", "table"}));
  EXPECT_EQ(completed({"engine", "train", "--lr", ""}), Words{});
  EXPECT_EQ(completed({"engine", "completion", ""}), (Words{"bash", "fish", "zsh"}));
  const Words models = completed({"engine", "train", "--model", ""});
  for (const std::string& name : models::model_names())
    EXPECT_EQ(std::ranges::count(models, name), 1) << name;
}

TEST(BashCompletion, CompletesFilesAndFolders) {
  const test_support::TemporaryDirectory folder;
  fs::create_directories(folder / "my runs");
  test_support::write_text(folder / "my.toml", "");
  const std::string place = folder.path().string();
  EXPECT_EQ(completed({"engine", "train", "--save-dir", "my"}, place), Words{"my runs"});
  EXPECT_EQ(completed({"engine", "train", "-c", "my"}, place), (Words{"my runs", "my.toml"}));
  EXPECT_EQ(completed({"engine", "train", "--model", "my"}, place), (Words{"my runs", "my.toml"}));
  EXPECT_EQ(completed({"engine", "verify", "a.ckpt", "my.t"}, place), Words{"my.toml"});
}

TEST(BashCompletion, KnowsWhatLaunchStarts) {
  EXPECT_EQ(completed({"engine", "launch", "--nproc-per-node", "2", "tr"}), Words{"train"});
  EXPECT_EQ(completed({"engine", "launch", "--env", "A", "=", "b", "--", "train", "--uneven", "j"}),
            Words{"join"});
  EXPECT_EQ(completed({"engine", "launch", "python", "--uneven", "j"}), Words{});
  EXPECT_EQ(completed({"engine", "submit", "--time", "30", ""}), Words{"train"});
  EXPECT_EQ(completed({"engine", "submit", "--time", "30", "train", "--uneven", "j"}),
            Words{"join"});
  EXPECT_EQ(completed({"engine", "train", "--device", "cuda", ":", "0", "--uneven", "j"}),
            Words{"join"});
}

// Other shells are asked whether they understand the script.
void expect_understood(const std::string& shell) {
  if (run_command({"sh", "-c", "command -v " + shell}).exit_code != 0)
    GTEST_SKIP() << shell << " is not installed";
  const test_support::TemporaryDirectory folder;
  const CommandResult script = engine({"completion", shell});
  ASSERT_EQ(script.exit_code, 0) << script.err;
  test_support::write_text(folder / "script", script.out);
  const CommandResult checked = run_command({shell, "-n", folder / "script"});
  EXPECT_EQ(checked.exit_code, 0);
  EXPECT_EQ(checked.err, "");
}

TEST(ZshCompletion, IsUnderstood) { expect_understood("zsh"); }

// What stands on the command line of an interactive zsh after each of these texts and the tab key.
std::vector<std::string> completed_by_zsh(const std::vector<std::string>& typed) {
  const test_support::TemporaryDirectory folder;
  fs::create_directories(folder / "my runs");
  test_support::write_text(folder / "layers.toml", "");
  test_support::write_text(folder / "_engine", engine({"completion", "zsh"}).out);
  test_support::write_text(folder / ".zshrc", R"(
cd $ZDOTDIR
fpath=($ZDOTDIR $fpath)
autoload -Uz compinit && compinit -u -D
ready() { print ready >$ZDOTDIR/told }
show() { print -r -- "$BUFFER" >$ZDOTDIR/told; BUFFER= }
zle -N zle-line-init ready
zle -N show
bindkey '^T' show
)");
  test_support::write_text(folder / "driver", R"(
zmodload zsh/zpty
mkfifo $1/told
exec 3<>$1/told
zpty shell "ZDOTDIR=$1 TERM=xterm exec zsh -i"
read -r line <&3
for typed in ${@:2}; do
  zpty -w -n shell $typed$'\t\x14'
  IFS= read -r line <&3
  print -r -- "$line"
  while zpty -r -t shell line; do :; done
done
)");
  std::vector<std::string> command{"zsh", "-f", folder / "driver", folder.path().string()};
  command.insert(command.end(), typed.begin(), typed.end());
  const CommandResult result = run_command(command);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::vector<std::string> lines;
  std::istringstream text(result.out);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

TEST(ZshCompletion, Completes) {
  if (run_command({"sh", "-c", "command -v zsh"}).exit_code != 0)
    GTEST_SKIP() << "zsh is not installed";
  const std::vector<std::pair<std::string, std::string>> cases{
      {"engine tra", "engine train "},
      {"engine train --sync-ev", "engine train --sync-every="},
      {"engine train --uneven j", "engine train --uneven join "},
      {"engine train --model=gpt-n", "engine train --model=gpt-nano "},
      {"engine train --model lay", "engine train --model layers.toml "},
      {"engine train --save-dir m", "engine train --save-dir my\\ runs/"},
      {"engine train --resume au", "engine train --resume auto "},
      {"engine bench step --warm", "engine bench step --warmup="},
      {"engine launch --nproc-per-node 2 train --uneven j",
       "engine launch --nproc-per-node 2 train --uneven join "},
  };
  std::vector<std::string> typed;
  for (const auto& [text, expected] : cases) typed.push_back(text);
  const std::vector<std::string> lines = completed_by_zsh(typed);
  ASSERT_EQ(lines.size(), cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(lines[i], cases[i].second);
}

TEST(FishCompletion, IsUnderstood) { expect_understood("fish"); }

TEST(FishCompletion, Completes) {
  if (run_command({"sh", "-c", "command -v fish"}).exit_code != 0)
    GTEST_SKIP() << "fish is not installed";
  const test_support::TemporaryDirectory home;
  const std::string script = "'" + test_support::engine_binary() +
                             "' completion fish | source; complete -C 'engine train --uneven '; "
                             "complete -C 'engine train --sync-ev'";
  const CommandResult result =
      run_command({"fish", "--no-config", "-c", script}, {{"HOME", home.path().string()}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* word : {"join", "drop", "pad", "--sync-every"})
    EXPECT_CONTAINS(result.out, word);
}

TEST(Completion, ScriptsNameEveryOption) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = engine({"completion", shell}).out;
    for (const tools::OptionSpec& option : tools::train_options()) {
      const std::string name =
          (std::string(shell) == "fish" ? " -l " : "--") + std::string(option.name);
      const std::size_t at = script.find(name);
      ASSERT_NE(at, std::string::npos) << shell << " lacks " << option.name;
    }
  }
  const CommandResult unknown = engine({"completion", "tcsh"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_CONTAINS(unknown.err, "'tcsh'");
}

}  // namespace
