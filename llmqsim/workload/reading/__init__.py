"""Traces as they lie about: files of many programs, packed or plain, block by block into columns, then judged once."""
