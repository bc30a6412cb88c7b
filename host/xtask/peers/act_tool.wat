;; `show` for ACT: a component of its contract act:tools@0.2.0. It reads no argument and always answers the same, which is
;; less than the others do: what it returns lies ready in its memory, and what it is given is put into one place, unread.
(component
  ;; A component of its own, because types that an exported function names have to be exported beside it.
  (component $provider
    (core module $m
      (memory (export "memory") 1)
      (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 4096))
      (func (export "list-tools") (param i32 i32) (result i32) (i32.const 128))
      (func (export "call-tool") (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 16))
      ;; A result: immediate, a list of one event.
      (data (i32.const 16) "\00\00\00\00" "\20\00\00\00" "\01\00\00\00")
      ;; The event: content, its data and its type; no metadata.
      (data (i32.const 32) "\00\00\00\00" "\40\00\00\00" "\06\00\00\00"
        "\01\00\00\00" "\50\00\00\00" "\0a\00\00\00" "\00\00\00\00" "\00\00\00\00")
      (data (i32.const 64) "1.5 km")
      (data (i32.const 80) "text/plain")
      ;; The tools: no metadata, a list of one.
      (data (i32.const 128) "\00\00\00\00" "\00\00\00\00" "\00\00\00\00" "\a0\00\00\00" "\01\00\00\00")
      ;; The tool: name, plain description, schema; no metadata.
      (data (i32.const 160) "\c8\00\00\00" "\04\00\00\00" "\00\00\00\00" "\cc\00\00\00" "\05\00\00\00"
        "\d4\00\00\00" "\11\00\00\00" "\00\00\00\00" "\00\00\00\00")
      (data (i32.const 200) "show")
      (data (i32.const 204) "Shows")
      (data (i32.const 212) "{\"type\":\"object\"}"))
    (core instance $m (instantiate $m))
    (alias core export $m "memory" (core memory $memory))
    (alias core export $m "realloc" (core func $realloc))

    (type $metadata (list (tuple string (list u8))))
    (type $text-is (variant (case "plain" string) (case "localized" (list (tuple string string)))))
    (export $text "localized-string" (type $text-is))
    (type $error-is (record (field "kind" string) (field "message" $text) (field "metadata" $metadata)))
    (export $error "error" (type $error-is))
    (type $tool-is (record (field "name" string) (field "description" $text)
      (field "parameters-schema" string) (field "metadata" $metadata)))
    (export $tool "tool-definition" (type $tool-is))
    (type $tools-is (record (field "metadata" $metadata) (field "tools" (list $tool))))
    (export $tools "list-tools-response" (type $tools-is))
    (type $part-is (record (field "data" (list u8)) (field "mime-type" (option string)) (field "metadata" $metadata)))
    (export $part "content-part" (type $part-is))
    (type $event-is (variant (case "content" $part) (case "error" $error)))
    (export $event "tool-event" (type $event-is))
    (type $events (stream $event))
    (type $result-is (variant (case "immediate" (list $event)) (case "streaming" $events)))
    (export $result "tool-result" (type $result-is))
    (func $list async (param "metadata" $metadata) (result (result $tools (error $error)))
      (canon lift (core func $m "list-tools") (memory $memory) (realloc $realloc)))
    (export "list-tools" (func $list))
    (func $call async (param "name" string) (param "arguments" (list u8)) (param "metadata" $metadata) (result $result)
      (canon lift (core func $m "call-tool") (memory $memory) (realloc $realloc)))
    (export "call-tool" (func $call)))
  (instance $provided (instantiate $provider))
  (export "act:tools/tool-provider@0.2.0" (instance $provided)))
