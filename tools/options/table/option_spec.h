// An option of `engine train` as one row: everything that the program knows of it. The command
// line, ENGINE_NAME, configuration files, help, manual pages, completion, the record of a run, the
// comparison of a resumed run and the agreement of ranks are derived from rows.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tools {

struct RunConfig;

// Describes why a value is rejected.
struct ValueFault {
  std::string expected;   // "a number above 0"
  std::string hint = {};  // ": did you mean 'flip'?"
};

// How the value of an option is written, and which part of a RunConfig it becomes. Functions that
// make fields: option_fields.h.
struct OptionField {
  enum class Type {
    kString,
    kInteger,
    kReal,
    kFlag,  // --x, --no-x; text "true" or "false"
    kChoice,
    kInterval,  // "2e" epochs, "500s" or "500" steps
    kList,      // integers with commas, "30,60"
    kDevices,   // numbers of devices, "0 1", "0,1" or "0-3"; "none"
  };
  Type type = Type::kString;
  std::vector<std::string> choices = {};  // kChoice: the texts
  // Checks the range of a canonical text (not empty) and stores the value.
  std::function<std::optional<ValueFault>(RunConfig&, const std::string& text)> store = {};
  // Returns the stored value as text; "": unset. Empty for values that are text of several parts.
  std::function<std::string(RunConfig&)> text = {};
};

// Is fulfilled by the value of one option.
struct Condition {
  enum class Kind {
    kOneOf,  // is, or lists, one of `choices`
    kOn,     // neither empty nor false, none, off or 0
    kOff,
    kGiven,  // any text
  };
  std::string option;  // "": the option whose row it stands in
  Kind kind = Kind::kGiven;
  std::string choices = {};  // "params|slowmo"
};
// If the option's own value fulfills `own`, one of `any_of` must hold, whatever its source.
struct Demand {
  Condition own;
  std::vector<Condition> any_of;
  std::string text;  // ends the message "--resume auto requires "
};

struct OptionSpec {
  using Type = OptionField::Type;
  enum class Agreement {
    kEqual,     // the same value on all ranks
    kFree,      // may differ between ranks
    kPresence,  // set on all ranks or on none
  };
  // What another value means when a run is resumed.
  enum class OnResume {
    kReport,    // it may change, which is reported
    kReject,    // it makes another experiment: only with --allow-change
    kPlace,     // a place of the data, whose content is compared instead
    kOneStart,  // it belongs to a single start: a run does not keep it
  };
  // Whether a snapshot's arrays fit the model that another value makes.
  enum class Arrays { kSame, kMayDiffer, kDiffer };

  std::string name;        // "sync-every": --sync-every, --sync_every, ENGINE_SYNC_EVERY, a key
  std::string alias = {};  // an earlier name, which is still accepted in all of these
  OptionField field;
  std::string metavar = {};  // "K"; by default "N" or "F" for a number, and the choices
  std::optional<std::string> initial = {};  // where it is not the structure's own; "" = unset
  std::string help;                         // one line, no full stop
  std::string example;                      // "--sync params --sync-every 8": as it may be typed
  Agreement agreement = Agreement::kEqual;  // what agreed_settings() lists
  OnResume on_resume = OnResume::kReport;
  Arrays arrays = Arrays::kSame;
  // A setting that needs another choice plays no part without it (kUnusedSource), unless it
  // comes from an equally strong source: then it is an error.
  std::vector<Condition> needs = {};
  std::vector<std::string> excludes = {};  // options; the stronger source counts
  std::vector<Demand> demands = {};
  bool of_model = false;       // commands that use a trained model take it from the snapshot
  bool shapes_coding = false;  // decides how samples are coded as numbers
  bool names_path = false;     // an empty text on the command line is an error

  // Filled in by the table.
  std::string group = {};          // heading in --help, optional [table] in a configuration file
  std::string default_value = {};  // as text; "" = unset

  Type type() const { return field.type; }
};

}  // namespace tools
