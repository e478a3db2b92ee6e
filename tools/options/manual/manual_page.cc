// Converts shapes of commands to roff, and adds the other texts of the pages.
#include "tools/options/manual/manual_page.h"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>

#include "io/base/text/text_parts.h"
#include "tools/options/input/help_text.h"

namespace tools {
namespace {

// Escapes characters that are special in roff, or that it would print as untypable ones.
std::string roff_text(std::string_view text) {
  std::string result;
  for (const char c : text) switch (c) {
      case '\\':
        result += "\\e";
        break;
      case '-':
        result += "\\-";
        break;
      case '~':
        result += "\\(ti";
        break;
      case '^':
        result += "\\(ha";
        break;
      case '`':
        result += "\\(ga";
        break;
      case '\'':
        result += "\\(aq";
        break;
      default:
        result += c;
    }
  return result;
}

std::string bold(std::string_view text) { return "\\fB" + roff_text(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + roff_text(text) + "\\fR"; }

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

// Formats prose for roff: each sentence starts on a new line, and no line is long.
std::string prose(const std::string& text) {
  constexpr std::size_t kColumns = 78;
  std::string result, line;
  const auto end_line = [&] {
    if (!line.empty()) result += (line.starts_with('.') ? "\\&" : "") + line + "\n";
    line.clear();
  };
  bool sentence_ended = false;
  for (const std::string& word : base::split_text(text, ' ')) {
    if (word.empty()) continue;
    const bool begins =
        sentence_ended && std::isupper(static_cast<unsigned char>(word.front())) != 0;
    if (begins || line.size() + 1 + word.size() > kColumns) end_line();
    line += (line.empty() ? "" : " ") + roff_text(word);
    sentence_ended = word.ends_with('.');
  }
  end_line();
  return result;
}

// Formats footers: indented lines are commands to type, others are prose that may be wrapped.
std::string footer_text(const std::string& footer) {
  std::string page, paragraph;
  bool examples = false;
  const auto end_paragraph = [&] {
    if (!paragraph.empty()) page += (page.empty() ? "" : ".PP\n") + prose(paragraph);
    paragraph.clear();
  };
  for (const std::string& line : base::split_text(footer, '\n')) {
    const bool command = line.starts_with("  ");
    if (command != examples) {
      end_paragraph();
      page += command ? ".PP\n.nf\n.RS 4\n" : ".RE\n.fi\n";
      examples = command;
    }
    if (command) {
      page += roff_text(base::trimmed(line)) + "\n";
    } else if (!line.empty()) {
      paragraph += (paragraph.empty() ? "" : " ") + line;
      if (line.ends_with('.') || line.ends_with(':')) end_paragraph();
    }
  }
  end_paragraph();
  return page + (examples ? ".RE\n.fi\n" : "");
}

std::string header(const std::string& name, const ProgramShape& program, const std::string& date) {
  return ".\\\" Made from the tables of options by `engine manual`: change those.\n.TH " +
         upper(name) + " 1 " + date + " \"engine " + program.version + "\" \"User Commands\"\n";
}

std::string option_text(const OptionShape& option) {
  std::string text = ".TP\n";
  for (std::size_t i = 0; i < option.names.size(); ++i)
    text += (i == 0 ? "" : ", ") +
            (option.positional ? italic(option.names[i]) : bold(option.names[i]));
  if (!option.value.empty()) text += " " + italic(option.value);
  std::string help = option.help;
  // Add choices that neither the value's name nor the help shows.
  if (!option.choices.empty() && option.value.find('|') == std::string::npos &&
      help.find(option.choices.front()) == std::string::npos)
    help += " (one of " + base::join_text(option.choices) + ")";
  if (option.required) help += " (required)";
  if (!option.default_value.empty()) help += " (default: " + option.default_value + ")";
  return text + "\n" + prose(help.empty() ? "see NOTES" : help);
}

std::string synopsis(const ProgramCommand& command) {
  std::string text =
      ".SH SYNOPSIS\n" + bold("engine " + command.name) + " [" + italic("OPTIONS") + "]";
  for (const OptionShape& o : command.shape.options) {
    if (!o.positional && !o.required) continue;
    std::string word =
        o.positional ? italic(o.names.front()) : bold(o.names.back()) + " " + italic(o.value);
    if (o.positional && o.takes_many) word += " ...";
    text += o.required ? " " + word : " [" + word + "]";
  }
  if (command.name == "launch") text += " [\\-\\-] " + italic("COMMAND") + " ...";
  return text + "\n";
}

std::string see_also(const ProgramShape& program, const std::string& page) {
  std::string text = ".SH SEE ALSO\n";
  std::vector<std::string> pages{"engine"};
  for (const ProgramCommand& c : program.commands) pages.push_back(page_name(c.name));
  std::erase(pages, page);
  std::ranges::sort(pages);
  for (std::size_t i = 0; i < pages.size(); ++i)
    text += ".BR " + roff_text(pages[i]) + " (1)" + (i + 1 < pages.size() ? " ,\n" : "\n");
  return text;
}

std::string exit_status(const ProgramShape& program) {
  std::string text = ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : program.exit_codes)
    text += ".TP\n" + bold(std::to_string(code)) + "\n" + prose(meaning);
  return text + ".TP\n" + bold("128+N") + "\nkilled by signal N, or ended because of it\n";
}

struct Variable {
  const char* names;
  const char* meaning;
};
constexpr Variable kVariables[] = {
    {"ENGINE_NAME",
     "The option --name of train and launch: ENGINE_BATCH_SIZE is --batch-size. The command line "
     "wins over the environment, and the environment over a file of --config."},
    {"RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT",
     "This process's place in the job, as torchrun sets them. Those of SLURM and MPI are "
     "understood too: engine env shows what was found, and where."},
    {"ENGINE_SECRET, ENGINE_SECRET_FILE",
     "The secret that the processes of a job prove to each other, or a file with it."},
    {"ENGINE_ISA", "The newest instruction set that kernels may use."},
    {"ENGINE_MPI_LIBRARY, ENGINE_NCCL_LIBRARY, ENGINE_NVML_LIBRARY, ENGINE_CUPTI_LIBRARY, "
     "ENGINE_CUBLASLT_LIBRARY",
     "Files to load as MPI, as NCCL, as NVIDIA's management library, as CUPTI and, for bench "
     "kernels, as "
     "cuBLASLt."},
};

}  // namespace

std::string page_name(const std::string& command) {
  std::string name = "engine-" + command;
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string manual_page(const ProgramShape& program, const ProgramCommand& command,
                        const std::string& date) {
  const std::string name = page_name(command.name);
  std::ostringstream page;
  page << header(name, program, date) << ".SH NAME\n"
       << roff_text(name) << " \\- " << roff_text(command.summary) << '\n'
       << synopsis(command) << ".SH DESCRIPTION\n"
       << prose(command.shape.description);
  std::vector<std::string> groups;
  for (const OptionShape& o : command.shape.options)
    if (std::ranges::find(groups, o.group) == groups.end()) groups.push_back(o.group);
  page << ".SH OPTIONS\n";
  for (const std::string& group : groups) {
    if (groups.size() > 1) page << ".SS " << roff_text(heading_of(group)) << '\n';
    for (const OptionShape& o : command.shape.options)
      if (o.group == group) page << option_text(o);
  }
  if (!command.shape.footer.empty()) page << ".SH NOTES\n" << footer_text(command.shape.footer);
  page << see_also(program, name);
  return page.str();
}

std::string overview_page(const ProgramShape& program, const std::string& date) {
  std::ostringstream page;
  page << header("engine", program, date)
       << ".SH NAME\nengine \\- data\\-parallel training with gradient or parameter averaging\n"
       << ".SH SYNOPSIS\n"
       << bold("engine") << ' ' << italic("COMMAND") << " [" << italic("OPTIONS") << "]\n.br\n"
       << bold("engine help") << " [" << italic("COMMAND") << "]\n.SH DESCRIPTION\n"
       << prose(
              "engine trains neural networks on one machine or a few. Every process (rank) runs "
              "the same model on its share of the data; the replicas are synchronized by averaging "
              "gradients every step, or parameters every few steps.")
       << ".SH COMMANDS\n";
  for (const ProgramCommand& c : program.commands)
    page << ".TP\n"
         << bold(c.name) << '\n'
         << prose(c.summary + ":") << ".BR " << roff_text(page_name(c.name)) << " (1)\n";
  page << ".SH ENVIRONMENT\n";
  for (const Variable& v : kVariables) page << ".TP\n" << bold(v.names) << '\n' << prose(v.meaning);
  page << exit_status(program) << ".SH EXAMPLES\n"
       << footer_text(
              "Train a small network with two processes, and compare their models:\n"
              "  engine train --model convnet --dataset glyphs --spawn 2 --save-dir run "
              "--save-rank-models\n"
              "  engine verify run/final_model_rank_*.ckpt\n"
              "Go on for two more epochs:\n"
              "  engine train --resume run --epochs 3")
       << see_also(program, "engine");
  return page.str();
}

}  // namespace tools
