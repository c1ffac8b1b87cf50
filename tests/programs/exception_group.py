def make(kind, text):
    try:
        raise kind(text)
    except kind as e:
        return e


e = make(OSError, "one")
e.add_note("a note")
raise ExceptionGroup("several", [e, ExceptionGroup("nested", [make(TypeError, "two")])])
