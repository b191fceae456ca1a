"""proxy.yaml, environment variables and options become one frozen configuration.

Theory of operation
    1. Settings that decide about a history are declared in structs of the core (`Rules`), others here.
    2. `loading` reads the file, sets variables and options over it, and validates.
    3. A policy inherits values, and compiles to `Rules`; attachments choose it for a request.

        Rules, Keep, Pins, SummaryRules --declared--> Policy ---+
        settings.py --------------------------------------------+--> Config --> proxy.yaml, JSON Schema
        file, variables, options --loading----------------------+           --> Policy.rules() --> Rules

settings     every group of settings but policies, and the whole configuration
policies     policies with their prompts and rules for tools, inheritance, and which requests each applies to
declared     models of the settings that structs and steps declare; a function of the operator's as a step
state_url    the URL of the state that replicas share
values       types that several settings share
loading      reads file, environment and options, and reports every fault with its line; compares two
faults       mistakes in a setting, and the setting that was probably meant; reads the YAML of a file
warnings     valid settings that are probably mistakes
defaults     writes the shipped proxy.yaml, and the JSON Schema of such a file
"""
